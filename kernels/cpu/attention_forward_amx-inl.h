// Attention, forward, in bf16 tiles by AMX: the products of attention_forward.cpp as 32 x 32 tiles of matmul_amx.h.
// Included once per Highway target.
#if defined(ISOTRAIN_KERNELS_ATTENTION_FORWARD_AMX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_ATTENTION_FORWARD_AMX_INL
#undef ISOTRAIN_KERNELS_ATTENTION_FORWARD_AMX_INL
#else
#define ISOTRAIN_KERNELS_ATTENTION_FORWARD_AMX_INL
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention-softmax-inl.h"
#include "kernels/cpu/attention_amx.h"
#include "kernels/cpu/attention_arguments.h"
#include "kernels/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// A head's keys and values, and the working memory of one block of query rows.
struct ForwardTiles {
  std::int64_t block_rows;
  attention_amx::Panels keys, values;            // keys along dq; columns of values along the keys
  attention_amx::Panels queries, probabilities;  // query rows along dq; along the keys of a chunk
  float *scores, *sums;                          // panels of 32 keys, block_rows rows each; (block_rows, dv)
  float *row_maximum, *row_sum;                  // (block_rows, 16)
};

/// Keys whose probabilities wait for one product with the values.
inline constexpr std::int64_t chunk_keys = 256;

/// Query rows [first, first + rows) of a head.
inline void forward_block(ForwardTiles const& at, AttentionForward<bfloat16> const& x, std::int64_t sample,
                          std::int64_t head, std::int64_t first, std::int64_t rows) {
  using namespace attention_amx;
  std::int64_t const dq = at.keys.steps, dv = padded(x.v.dim), keys = first + rows;
  ScoreRows<edge> const block{first, x.scale, at.scores, at.block_rows * edge, at.row_maximum, at.row_sum};
  pack(at.queries, Factor::a, rows_of(x.q, sample * x.sequence + first, head, rows));
  start_maxima(block, rows);
  for (std::int64_t key = 0; key < keys; key += edge) {
    for (std::int64_t r = block.first_row(key / 16); r < rows; r += edge) {
      multiply(block.at(key / 16, r), edge, at.queries.at(r), at.keys.at(key), dq, rows - r, keys - key,
               Accumulate::no);
    }
    // One panel behind: by then the scores have left the processor's store buffer.
    if (key > 0) add_to_maxima(block, rows, key / 16 - edge / 16, key / 16);
  }
  add_to_maxima(block, rows, (keys - 1) / edge * (edge / 16), padded(keys) / 16);
  finish_maxima(block, rows);
  for (std::int64_t chunk = 0; chunk < keys; chunk += chunk_keys) {
    std::int64_t const chunk_end = std::min(keys, chunk + chunk_keys);
    for (std::int64_t key = chunk; key < chunk_end; key += edge) {
      // As fp32: they are rounded on their way into the panel.
      exponentiate<float>(block, rows, key / 16, (key + edge) / 16);
      for (std::int64_t r = block.first_row(key / 16); r < rows; r += edge) {
        gemm::amx::round_rows(at.probabilities.at(r, key - chunk), block.at(key / 16, r));
      }
    }
    for (std::int64_t j = 0; j < x.v.dim; j += edge) {
      for (std::int64_t r = block.first_row(chunk / 16); r < rows; r += edge) {
        std::int64_t const end = std::min(padded(chunk_end), first + r + edge);
        multiply(at.sums + r * dv + j, dv, at.probabilities.at(r), at.values.at(j, chunk), end - chunk, rows - r,
                 x.v.dim - j, chunk == 0 ? Accumulate::no : Accumulate::yes);
      }
    }
  }
  finish_rows(block, x, sample, head, first, rows, at.sums, dv, 16);
}

/// Units [begin, end): a unit is a query head of a sample. For queries of all tokens.
inline void forward_units_amx(AttentionForward<bfloat16> const& x, std::int64_t begin, std::int64_t end) {
  using namespace attention_amx;
  thread_local Scratch scratch;
  TileConfiguration const configuration;
  std::int64_t const dq = padded(x.q.dim), dv = padded(x.v.dim), keys = padded(x.sequence);
  ForwardTiles at{};
  at.block_rows = x.sequence > 1024 ? edge : 2 * edge;  // so that their scores stay in the second cache
  at.keys.steps = at.queries.steps = dq;
  at.values.steps = keys;
  at.probabilities.steps = chunk_keys;
  scratch.cut({{&at.keys.memory, at.keys.floats(keys)},
               {&at.values.memory, at.values.floats(dv)},
               {&at.queries.memory, at.queries.floats(at.block_rows)},
               {&at.probabilities.memory, at.probabilities.floats(at.block_rows)},
               {&at.scores, at.block_rows * keys},
               {&at.sums, at.block_rows * dv},
               {&at.row_maximum, at.block_rows * 16},
               {&at.row_sum, at.block_rows * 16}});
  std::int64_t const group = x.q.heads / x.k.heads;
  std::int64_t packed = -1;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    std::int64_t const sample = unit / x.q.heads, head = unit % x.q.heads;
    if (packed != unit / group) {
      packed = unit / group;
      pack(at.keys, Factor::b, rows_of(x.k, sample * x.sequence, head / group, x.sequence));
      pack(at.values, Factor::b, rows_of(x.v, sample * x.sequence, head / group, x.sequence).transposed());
    }
    for (std::int64_t row = 0; row < x.queries; row += at.block_rows) {
      forward_block(at, x, sample, head, row, std::min(at.block_rows, x.queries - row));
    }
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
