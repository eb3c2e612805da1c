// Attention, backward, in bf16 tiles by AMX: the products of attention_backward.cpp as 32 x 32 tiles of matmul_amx.h.
// Scores are multiplied as [key][query]: so probabilities are the left factor of the values' gradients, and the scores'
// gradients that of the keys' ones, as they come. Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_ATTENTION_BACKWARD_AMX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_ATTENTION_BACKWARD_AMX_INL
#undef ISOTRAIN_KERNELS_ATTENTION_BACKWARD_AMX_INL
#else
#define ISOTRAIN_KERNELS_ATTENTION_BACKWARD_AMX_INL
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention-panels-inl.h"
#include "kernels/cpu/attention_amx.h"
#include "kernels/cpu/attention_arguments.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Query rows of a block; keys whose scores' gradients wait for one product with the keys.
inline constexpr std::int64_t amx_block_rows = 256, amx_chunk_keys = 512;

/// One key head of a sample, its gradients so far, and the working memory of one block of query rows.
struct BackwardTiles {
  attention_amx::Panels keys, values, key_columns;               // along dq; along dv; along the keys
  float *key_gradients, *value_gradients;                        // (keys, dq), (keys, dv)
  attention_amx::Panels queries, output_gradients;               // along dq; along dv
  attention_amx::Panels query_columns, output_gradient_columns;  // along the rows
  attention_amx::Panels probabilities, score_gradients;          // 32 keys along the rows
  attention_amx::Panels score_gradient_columns;                  // rows along the keys of a chunk
  float *scores, *products;                                      // two of 32 x 32: [key][row]
  float *query_sums, *query_gradients;                           // (dq, rows) and its transpose
  float *lse, *row_dot;                                          // (rows)
};

/// A block of query rows of one head.
struct BackwardRows {
  std::int64_t sample, head, first, count;
};

/// Scores to probabilities, products of output gradients and values to scores' gradients: of 32 keys key, ... and 16
/// rows r, ... of a block, as [key][row] with 32 elements from key to key.
inline void differentiate_half(float* scores, float* products, BackwardTiles const& at, BackwardRows const& rows,
                               std::int64_t key, std::int64_t r, float scale) {
  using attention_amx::edge;
  F32x16 const factor = splat(scale), lse = load(at.lse + r), row_dot = load(at.row_dot + r);
  bool const whole = key + edge <= rows.first + r + 1 && r + 16 <= rows.count;
  for (std::int64_t i = 0; i < edge; ++i, scores += edge, products += edge) {
    F32x16 probability = exponential(load(scores) * factor - lse);
    F32x16 gradient = probability * (load(products) - row_dot);
    if (!whole) {
      std::int64_t const hidden = key + i - rows.first - r;
      probability = lanes_between(probability, hidden, rows.count - r);
      gradient = lanes_between(gradient, hidden, rows.count - r);
    }
    store(probability, scores);
    store(gradient, products);
  }
}

/// Keys key, ..., key + 31 against all rows of a block that see one of them; `chunk` is the first key of the chunk.
inline void backward_keys(BackwardTiles const& at, AttentionBackward<bfloat16> const& x, BackwardRows const& rows,
                          std::int64_t key, std::int64_t chunk) {
  using namespace attention_amx;
  std::int64_t const dq = at.keys.steps, dv = at.values.steps;
  std::int64_t const begin = std::max<std::int64_t>(0, key - rows.first), end = padded(rows.count);
  auto const tile_of = [](float* tiles, std::int64_t r) { return tiles + r % (2 * edge) * edge; };
  auto const multiply_scores = [&](std::int64_t r) {
    multiply(tile_of(at.scores, r), edge, at.keys.at(key), at.queries.at(r), dq, edge, edge, Accumulate::no);
  };
  auto const multiply_products = [&](std::int64_t r) {
    multiply(tile_of(at.products, r), edge, at.values.at(key), at.output_gradients.at(r), dv, edge, edge,
             Accumulate::no);
  };
  multiply_scores(begin);
  multiply_products(begin);
  for (std::int64_t r = begin; r < end; r += edge) {
    float *scores = tile_of(at.scores, r), *products = tile_of(at.products, r);
    // One tile ahead: by then the products have left the processor's store buffer. And not both at once: the matrix
    // unit sleeps after half a microsecond without work, and takes a quarter of one to wake up.
    if (r + edge < end) multiply_scores(r + edge);
    differentiate_half(scores, products, at, rows, key, r, x.scale);
    if (r + edge < end) multiply_products(r + edge);
    differentiate_half(scores + 16, products + 16, at, rows, key, r + 16, x.scale);
    gemm::amx::round_rows(at.probabilities.at(0, r), scores);
    gemm::amx::round_rows(at.score_gradients.at(0, r), products);
    gemm::amx::round_cols(at.score_gradient_columns.at(r, key - chunk), products);
  }
  // The first rows that see a key, of the first head of a group, start its sums.
  bool const starts = key >= rows.first && rows.head % (x.q.heads / x.k.heads) == 0;
  Accumulate const accumulate = starts ? Accumulate::no : Accumulate::yes;
  for (std::int64_t j = 0; j < x.v.dim; j += edge) {
    multiply(at.value_gradients + key * dv + j, dv, at.probabilities.at(0, begin),
             at.output_gradient_columns.at(j, begin), end - begin, edge, x.v.dim - j, accumulate);
  }
  for (std::int64_t i = 0; i < x.q.dim; i += edge) {
    multiply(at.key_gradients + key * dq + i, dq, at.score_gradients.at(0, begin), at.query_columns.at(i, begin),
             end - begin, edge, x.q.dim - i, accumulate);
  }
}

/// A block of query rows against all keys that they see.
inline void backward_block(BackwardTiles const& at, AttentionBackward<bfloat16> const& x, BackwardRows const& rows) {
  using namespace attention_amx;
  std::int64_t const token = rows.sample * x.sequence + rows.first, dq = at.keys.steps;
  auto const queries = rows_of(x.q, token, rows.head, rows.count);
  auto const output_gradients = rows_of(x.d_o, token, rows.head, rows.count);
  pack(at.queries, Factor::b, queries);
  pack(at.query_columns, Factor::b, queries.transposed());
  pack(at.output_gradients, Factor::b, output_gradients);
  pack(at.output_gradient_columns, Factor::b, output_gradients.transposed());
  for (std::int64_t r = 0; r < rows.count; ++r) {
    at.lse[r] = x.lse[(rows.sample * x.q.heads + rows.head) * x.sequence + rows.first + r];
    at.row_dot[r] = dot(output_gradients.row(r), x.o.at(token + r, rows.head), x.v.dim);
  }
  std::int64_t const keys = padded(rows.first + rows.count);
  for (std::int64_t chunk = 0; chunk < keys; chunk += amx_chunk_keys) {
    std::int64_t const chunk_end = std::min(keys, chunk + amx_chunk_keys);
    for (std::int64_t key = chunk; key < chunk_end; key += edge) backward_keys(at, x, rows, key, chunk);
    for (std::int64_t r = std::max<std::int64_t>(0, chunk - rows.first); r < rows.count; r += edge) {
      std::int64_t const end = std::min(chunk_end, rows.first + r + edge);
      for (std::int64_t i = 0; i < x.q.dim; i += edge) {
        multiply(at.query_sums + i * amx_block_rows + r, amx_block_rows, at.key_columns.at(i, chunk),
                 at.score_gradient_columns.at(r), end - chunk, x.q.dim - i, edge,
                 chunk == 0 ? Accumulate::no : Accumulate::yes);
      }
    }
  }
  gemm::amx::transpose(at.query_gradients, dq, {at.query_sums, dq, padded(rows.count), amx_block_rows});
  for (std::int64_t r = 0; r < rows.count; ++r) {
    unpack_row(x.dq.at(token + r, rows.head), at.query_gradients + r * dq, 16, x.q.dim, splat(x.scale));
  }
}

/// Units [begin, end): a unit is a key head of a sample, with its group of query heads.
inline void backward_units_amx(AttentionBackward<bfloat16> const& x, std::int64_t begin, std::int64_t end) {
  using namespace attention_amx;
  thread_local Scratch scratch;
  TileConfiguration const configuration;
  std::int64_t const dq = padded(x.q.dim), dv = padded(x.v.dim), keys = padded(x.sequence);
  BackwardTiles at{};
  at.keys.steps = at.queries.steps = dq;
  at.values.steps = at.output_gradients.steps = dv;
  at.key_columns.steps = keys;
  at.query_columns.steps = at.output_gradient_columns.steps = amx_block_rows;
  at.probabilities.steps = at.score_gradients.steps = amx_block_rows;
  at.score_gradient_columns.steps = amx_chunk_keys;
  scratch.cut({{&at.keys.memory, at.keys.floats(keys)},
               {&at.values.memory, at.values.floats(keys)},
               {&at.key_columns.memory, at.key_columns.floats(dq)},
               {&at.key_gradients, keys * dq},
               {&at.value_gradients, keys * dv},
               {&at.queries.memory, at.queries.floats(amx_block_rows)},
               {&at.output_gradients.memory, at.output_gradients.floats(amx_block_rows)},
               {&at.query_columns.memory, at.query_columns.floats(dq)},
               {&at.output_gradient_columns.memory, at.output_gradient_columns.floats(dv)},
               {&at.probabilities.memory, at.probabilities.floats(edge)},
               {&at.score_gradients.memory, at.score_gradients.floats(edge)},
               {&at.score_gradient_columns.memory, at.score_gradient_columns.floats(amx_block_rows)},
               {&at.scores, 2 * edge * edge},
               {&at.products, 2 * edge * edge},
               {&at.query_sums, amx_block_rows * dq},
               {&at.query_gradients, amx_block_rows * dq},
               {&at.lse, amx_block_rows},
               {&at.row_dot, amx_block_rows}});
  std::int64_t const group = x.q.heads / x.k.heads;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    std::int64_t const sample = unit / x.k.heads, key_head = unit % x.k.heads;
    std::int64_t const token = sample * x.sequence;
    auto const head_keys = rows_of(x.k, token, key_head, x.sequence);
    pack(at.keys, Factor::a, head_keys);
    pack(at.key_columns, Factor::a, head_keys.transposed());
    pack(at.values, Factor::a, rows_of(x.v, token, key_head, x.sequence));
    for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      for (std::int64_t first = 0; first < x.sequence; first += amx_block_rows) {
        backward_block(at, x, {sample, head, first, std::min(amx_block_rows, x.sequence - first)});
      }
    }
    for (std::int64_t s = 0; s < x.sequence; ++s) {
      unpack_row(x.dk.at(token + s, key_head), at.key_gradients + s * dq, 16, x.q.dim, splat(x.scale));
      unpack_row(x.dv.at(token + s, key_head), at.value_gradients + s * dv, 16, x.v.dim, splat(1.0F));
    }
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
