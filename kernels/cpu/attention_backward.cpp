// Attention, backward. What its bits are stands at the top of attention_forward.cpp.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cpu/attention-panels-inl.h"
#include "kernels/cpu/attention-tile-inl.h"
#include "kernels/cpu/attention_arguments.h"
#include "kernels/cpu/attention_backward_amx-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/scratch.h"
#include "lib/base/error.h"
#include "lib/device/amx.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

inline constexpr std::int64_t block = 64;  // query rows, and keys, of one step; a multiple of tile_block
inline constexpr std::int64_t block_stride = panel_stride(block);

/// One key head of a sample, its gradients so far, and the working memory of one step.
struct BackwardPanels {
  std::int64_t padded_keys;
  float *keys, *key_gradients, *value_gradients;   // panels of padded_keys rows
  float *keys_transposed, *values_transposed;      // panels of dq, dv rows
  float *queries, *output_gradients, *query_sums;  // panels of `block` rows
  float *probabilities, *score_gradients;          // panels of `block` rows, `block` columns
  float *lse, *row_dot;                            // (block)
};

/// Scores to p, output products to ds, both rounded to T, of the panels that begin at key `key`. Row 0 is at position
/// `first`.
template <class T>
void differentiate_softmax(BackwardPanels const& at, std::int64_t first, std::int64_t rows, std::int64_t key,
                           std::int64_t panels, float scale) {
  F32x16 const factor = splat(scale);
  for (std::int64_t p = 0; p < panels; ++p) {
    std::int64_t const panel_key = key + p * 16;
    for (std::int64_t r = std::max<std::int64_t>(0, panel_key - first); r < rows; ++r) {
      float* z = at.probabilities + p * block_stride + r * 16;
      float* dp = at.score_gradients + p * block_stride + r * 16;
      F32x16 probability = exponential(load(z) * factor - splat(at.lse[r]));
      F32x16 gradient = probability * (load(dp) - splat(at.row_dot[r]));
      std::int64_t const visible = first + r - panel_key + 1;
      if (visible < 16) {
        probability = first_lanes(probability, visible, 0.0F);
        gradient = first_lanes(gradient, visible, 0.0F);
      }
      store(rounded<T>(probability), z);
      store(rounded<T>(gradient), dp);
    }
  }
}

/// One step: query rows first, ... of a head against the keys key, ... up to the diagonal.
template <class T, Sum sum>
void backward_step(BackwardPanels const& at, std::int64_t dq, std::int64_t dv, std::int64_t first, std::int64_t rows,
                   std::int64_t key, std::int64_t sequence, float scale) {
  constexpr int tile = chain_rows;
  std::int64_t const tiled_rows = (rows + tile - 1) / tile * tile;
  std::int64_t const panels = std::min(block, first + tiled_rows - key + 15) / 16;
  for (std::int64_t p = 0; p < panels; p += chain_panels) {
    std::int64_t const panel = key / 16 + p;
    for (std::int64_t r = std::max<std::int64_t>(0, panel * 16 - first); r < tiled_rows; r += tile) {
      // A tile of rows lies in one panel of keys.
      std::int64_t const visible = std::min({panels - p, std::int64_t{chain_panels}, (first + r) / 16 + 1 - panel});
      std::int64_t const to = p * block_stride + r * 16;
      product<sum, Left::rows, tile>(at.probabilities + to, block_stride, at.queries + r * 16, block_stride,
                                     at.keys_transposed + panel * panel_stride(dq), panel_stride(dq), visible, 0, dq,
                                     Accumulate::no);
      product<sum, Left::rows, tile>(at.score_gradients + to, block_stride, at.output_gradients + r * 16, block_stride,
                                     at.values_transposed + panel * panel_stride(dv), panel_stride(dv), visible, 0, dv,
                                     Accumulate::no);
    }
  }
  differentiate_softmax<T>(at, first, tiled_rows, key, panels, scale);

  std::int64_t const key_stride = panel_stride(at.padded_keys);
  std::int64_t const key_panels = num_panels(dq), value_panels = num_panels(dv);
  std::int64_t const keys = std::min(panels * 16, at.padded_keys - key);
  for (std::int64_t s = 0; s < keys; s += tile) {
    // The first row that sees a key of this panel: rows above it were not computed.
    std::int64_t const begin = std::max<std::int64_t>(0, (key + s) / 16 * 16 - first);
    std::int64_t const from = s / 16 * block_stride + s % 16;
    std::int64_t const to = (key + s) * 16;
    product<sum, Left::columns, tile>(at.value_gradients + to, key_stride, at.probabilities + from, block_stride,
                                      at.output_gradients, block_stride, value_panels, begin, rows, Accumulate::yes);
    product<sum, Left::columns, tile>(at.key_gradients + to, key_stride, at.score_gradients + from, block_stride,
                                      at.queries, block_stride, key_panels, begin, rows, Accumulate::yes);
  }
  for (std::int64_t r = 0; r < tiled_rows; r += tile) {
    std::int64_t const end = std::min({sequence, first + r + tile, key + block}) - key;
    product<sum, Left::rows, tile>(at.query_sums + r * 16, block_stride, at.score_gradients + r * 16, block_stride,
                                   at.keys + key * 16, key_stride, key_panels, 0, end,
                                   key == 0 ? Accumulate::no : Accumulate::yes);
  }
}

/// Query rows [first, first + rows) of one head against all keys that they see.
template <class T, Sum sum>
void backward_block(BackwardPanels const& at, AttentionBackward<T> const& x, std::int64_t sample, std::int64_t head,
                    std::int64_t first, std::int64_t rows) {
  std::int64_t const dq = x.q.dim, dv = x.v.dim;
  std::int64_t const token = sample * x.sequence + first;
  pack(at.queries, block, x.q.at(token, head), x.q.row_stride, rows, dq);
  pack(at.output_gradients, block, x.d_o.at(token, head), x.d_o.row_stride, rows, dv);
  std::fill(at.lse, at.lse + block, 0.0F);
  std::fill(at.row_dot, at.row_dot + block, 0.0F);
  for (std::int64_t r = 0; r < rows; ++r) {
    at.lse[r] = x.lse[(sample * x.q.heads + head) * x.sequence + first + r];
    at.row_dot[r] = dot(x.d_o.at(token + r, head), x.o.at(token + r, head), dv);
  }
  for (std::int64_t key = 0; key < first + rows; key += block) {
    backward_step<T, sum>(at, dq, dv, first, rows, key, x.sequence, x.scale);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    unpack_row(x.dq.at(token + r, head), at.query_sums + r * 16, block_stride, dq, splat(x.scale));
  }
}

/// Units [begin, end): a unit is a key head of a sample, with its group of query heads.
template <class T, Sum sum>
void backward_units(AttentionBackward<T> const& x, std::int64_t begin, std::int64_t end) {
  thread_local Scratch scratch;
  std::int64_t const dq = x.q.dim, dv = x.v.dim;
  BackwardPanels at{};
  std::int64_t const padded = at.padded_keys = (x.sequence + 15) / 16 * 16;
  scratch.cut({{&at.keys, panels_size(padded, dq)},
               {&at.key_gradients, panels_size(padded, dq)},
               {&at.value_gradients, panels_size(padded, dv)},
               {&at.keys_transposed, panels_size(dq, padded)},
               {&at.values_transposed, panels_size(dv, padded)},
               {&at.queries, panels_size(block, dq)},
               {&at.output_gradients, panels_size(block, dv)},
               {&at.query_sums, panels_size(block, dq)},
               {&at.probabilities, panels_size(block, block)},
               {&at.score_gradients, panels_size(block, block)},
               {&at.lse, block},
               {&at.row_dot, block}});
  std::int64_t const group = x.q.heads / x.k.heads;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    std::int64_t const sample = unit / x.k.heads, key_head = unit % x.k.heads;
    std::int64_t const token = sample * x.sequence;
    // The gradients' memory holds the untransposed values until it is needed.
    pack(at.value_gradients, padded, x.v.at(token, key_head), x.v.row_stride, x.sequence, dv);
    transpose(at.values_transposed, at.value_gradients, padded, dv);
    pack(at.keys, padded, x.k.at(token, key_head), x.k.row_stride, x.sequence, dq);
    transpose(at.keys_transposed, at.keys, padded, dq);
    std::fill(at.key_gradients, at.key_gradients + panels_size(padded, dq), 0.0F);
    std::fill(at.value_gradients, at.value_gradients + panels_size(padded, dv), 0.0F);
    for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      for (std::int64_t first = 0; first < x.sequence; first += block) {
        backward_block<T, sum>(at, x, sample, head, first, std::min(block, x.sequence - first));
      }
    }
    for (std::int64_t s = 0; s < x.sequence; ++s) {
      unpack_row(x.dk.at(token + s, key_head), at.key_gradients + s * 16, panel_stride(padded), dq, splat(x.scale));
      unpack_row(x.dv.at(token + s, key_head), at.value_gradients + s * 16, panel_stride(padded), dv, splat(1.0F));
    }
  }
}

void backward_float(AttentionBackward<float> const& x, std::int64_t begin, std::int64_t end) {
  backward_units<float, Sum::chain>(x, begin, end);
}
void backward_tiles(AttentionBackward<bfloat16> const& x, std::int64_t begin, std::int64_t end) {
#if HWY_TARGET == HWY_AVX3
  if (amx_usable()) return backward_units_amx(x, begin, end);
#endif
  backward_units<bfloat16, Sum::tiles>(x, begin, end);
}
void backward_pairs(AttentionBackward<bfloat16> const& x, std::int64_t begin, std::int64_t end) {
  backward_units<bfloat16, Sum::pairs>(x, begin, end);
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

HWY_EXPORT(backward_float);
HWY_EXPORT(backward_tiles);
HWY_EXPORT(backward_pairs);

void run(Cpu const& at, AttentionBackward<float> const& x, std::int64_t units) {
  at.parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(backward_float)(x, begin, end);
  });
}

void run(Cpu const& at, AttentionBackward<bfloat16> const& x, std::int64_t units) {
  at.parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end) {
    if (at.bf16_class() == Bf16Class::tiles) {
      HWY_DYNAMIC_DISPATCH(backward_tiles)(x, begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(backward_pairs)(x, begin, end);
    }
  });
}

template <class A, class B>
bool alike(Heads<A> const& a, Heads<B> const& b) {
  return a.rows == b.rows && a.heads == b.heads && a.dim == b.dim;
}

}  // namespace

template <class T>
void attention_backward(Cpu const& at, Heads<T> dq, Heads<T> dk, Heads<T> dv, Heads<T const> d_o, Heads<T const> o,
                        std::span<float const> lse, Heads<T const> q, Heads<T const> k, Heads<T const> v,
                        AttentionShape shape) {
  expects(k.heads > 0 && q.heads > 0 && q.heads % k.heads == 0, "key heads divide query heads");
  expects(v.heads == k.heads && v.rows == k.rows && q.dim == k.dim, "keys and values of the same tokens");
  expects(o.rows == q.rows && o.heads == q.heads && o.dim == v.dim, "outputs as queries, of the width of values");
  expects(alike(dq, q) && alike(dk, k) && alike(dv, v) && alike(d_o, o), "gradients as what they belong to");
  expects(q.rows == shape.samples * shape.sequence && k.rows == q.rows, "rows are samples * sequence");
  expects(static_cast<std::int64_t>(lse.size()) == q.rows * q.heads, "one lse for each row and head");
  run(at, AttentionBackward<T>{dq, dk, dv, d_o, o, lse.data(), q, k, v, shape.sequence, shape.scale},
      shape.samples * k.heads);
}

template void attention_backward<float>(Cpu const&, Heads<float>, Heads<float>, Heads<float>, Heads<float const>,
                                        Heads<float const>, std::span<float const>, Heads<float const>,
                                        Heads<float const>, Heads<float const>, AttentionShape);
template void attention_backward<bfloat16>(Cpu const&, Heads<bfloat16>, Heads<bfloat16>, Heads<bfloat16>,
                                           Heads<bfloat16 const>, Heads<bfloat16 const>, std::span<float const>,
                                           Heads<bfloat16 const>, Heads<bfloat16 const>, Heads<bfloat16 const>,
                                           AttentionShape);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
