// Attention, forward. What its bits are, for one (sample, query head), T positions, keys s <= t only:
//
//   z[t,s]  = scale * sum over i of q[t,i] k[s,i]
//   m[t]    = max over s of z[t,s]
//   p[t,s]  = exp(z[t,s] - m[t])                          (math-inl.h)
//   l[t]    = 16 partial sums of p[t,s] by s mod 16, s ascending from +0, then tree_sum (simd-inl.h)
//   o[t,j]  = (sum over s of T(p[t,s]) v[s,j]) * (1 / l[t]), rounded once to T
//   lse[t]  = m[t] + log(l[t])
//
// Backward (attention_backward.cpp), a sum over the query heads of a group being one sum that goes on, heads ascending:
//
//   p[t,s]  = exp(z[t,s] - lse[t])
//   d[t]    = sum over j of do[t,j] o[t,j]                 (16 partial sums by j mod 16, FMAs from +0, then tree_sum)
//   ds[t,s] = p[t,s] * (sum over j of do[t,j] v[s,j] - d[t])
//   dv[s,j] = sum over heads, over t of T(p[t,s]) do[t,j]
//   dk[s,i] = scale * (sum over heads, over t of T(ds[t,s]) q[t,i])
//   dq[t,i] = scale * (sum over s of T(ds[t,s]) k[s,i])
//
// Every sum of products is one of kernels/matmul.h, K counted from element 0, position 0 (of each head): for float one
// chain of FMAs; for bfloat16 the place's class, p and ds rounded to bfloat16 as T(...) says. Terms of masked pairs are
// +0; as a term that is 0 can change only the sign of a 0, and +0 is added to each result, it does not matter which of
// them a sum contains. (That is so for finite inputs: infinities and NaN in token s may reach rows t < s of the same
// block.)
//
// The maximum is over the whole row, not a running one: a block of query rows keeps its scores of all keys (64 rows at
// most), so nothing is ever rescaled, rows do not depend on how keys are cut into blocks, and decoding gives the bits
// of the prompt.
//
// Here and in attention_backward.cpp products are chains of vector instructions over widened panels, in every class;
// the tiles class by AMX is in attention_forward_amx-inl.h and attention_backward_amx-inl.h, to the same bits.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cpu/attention-panels-inl.h"
#include "kernels/cpu/attention-softmax-inl.h"
#include "kernels/cpu/attention-tile-inl.h"
#include "kernels/cpu/attention_arguments.h"
#include "kernels/cpu/attention_forward_amx-inl.h"
#include "kernels/cpu/scratch.h"
#include "lib/base/error.h"
#include "lib/device/amx.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// One sample's keys and values, and the working memory of one block of query rows.
struct ForwardPanels {
  std::int64_t block_rows, padded_keys;
  float *keys, *keys_transposed, *values;  // panels of: padded_keys rows; dq rows; padded_keys rows
  float *queries, *scores, *sums;          // panels of block_rows rows
  float *row_maximum, *row_sum;            // (block_rows, 16)
};

/// Query rows [row, row + rows) of a head; row 0 of the head is at position sequence - queries.
template <class T, Sum sum, int tile>
void forward_block(ForwardPanels const& at, AttentionForward<T> const& x, std::int64_t sample, std::int64_t head,
                   std::int64_t row, std::int64_t rows) {
  std::int64_t const dq = x.q.dim, dv = x.v.dim;
  std::int64_t const first = x.sequence - x.queries + row;
  std::int64_t const tiled_rows = (rows + tile - 1) / tile * tile;
  std::int64_t const stride = panel_stride(at.block_rows);
  std::int64_t const panels = (first + tiled_rows - 1) / 16 + 1;
  ScoreRows<16> const block{first, x.scale, at.scores, stride, at.row_maximum, at.row_sum};
  pack(at.queries, at.block_rows, x.q.at(sample * x.queries + row, head), x.q.row_stride, rows, dq);

  for (std::int64_t p = 0; p < panels; p += chain_panels) {
    for (std::int64_t r = std::max<std::int64_t>(0, p * 16 - first); r < tiled_rows; r += tile) {
      // A tile of rows lies in one panel of keys.
      std::int64_t const visible = (first + r) / 16 + 1 - p;
      product<sum, Left::rows, tile>(at.scores + p * stride + r * 16, stride, at.queries + r * 16, stride,
                                     at.keys_transposed + p * panel_stride(dq), panel_stride(dq),
                                     std::min<std::int64_t>(chain_panels, visible), 0, dq, Accumulate::no);
    }
  }
  start_maxima(block, tiled_rows);
  add_to_maxima(block, tiled_rows, 0, panels);
  finish_maxima(block, tiled_rows);
  exponentiate<T>(block, tiled_rows, 0, panels);

  constexpr std::int64_t key_block = 128;  // its values stay in the first cache while all rows pass
  std::int64_t const last_end = std::min(x.sequence, first + tiled_rows);
  for (std::int64_t key = 0; key < last_end; key += key_block) {
    for (std::int64_t r = std::max<std::int64_t>(0, (key - first) / tile * tile); r < tiled_rows; r += tile) {
      std::int64_t const end = std::min({x.sequence, first + r + tile, key + key_block});
      if (end <= key) continue;
      product<sum, Left::rows, tile>(at.sums + r * 16, stride, at.scores + r * 16, stride, at.values,
                                     panel_stride(at.padded_keys), num_panels(dv), key, end,
                                     key == 0 ? Accumulate::no : Accumulate::yes);
    }
  }

  finish_rows(block, x, sample, head, row, rows, at.sums, 16, stride);
}

/// Units [begin, end): a unit is a query head of a sample.
template <class T, Sum sum, int tile>
void forward_units(AttentionForward<T> const& x, std::int64_t begin, std::int64_t end) {
  thread_local Scratch scratch;
  std::int64_t const dq = x.q.dim, dv = x.v.dim;
  ForwardPanels at{};
  at.block_rows = rows_of_block(x.queries, x.sequence);
  at.padded_keys = (x.sequence + 15) / 16 * 16;
  scratch.cut({{&at.keys, panels_size(at.padded_keys, dq)},
               {&at.keys_transposed, panels_size(dq, at.padded_keys)},
               {&at.values, panels_size(at.padded_keys, dv)},
               {&at.queries, panels_size(at.block_rows, dq)},
               {&at.scores, panels_size(at.block_rows, at.padded_keys)},
               {&at.sums, panels_size(at.block_rows, dv)},
               {&at.row_maximum, at.block_rows * 16},
               {&at.row_sum, at.block_rows * 16}});
  std::int64_t const group = x.q.heads / x.k.heads;
  std::int64_t packed = -1;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    std::int64_t const sample = unit / x.q.heads, head = unit % x.q.heads;
    if (packed != unit / group) {
      packed = unit / group;
      std::int64_t const key_head = head / group;
      pack(at.keys, at.padded_keys, x.k.at(sample * x.sequence, key_head), x.k.row_stride, x.sequence, dq);
      transpose(at.keys_transposed, at.keys, at.padded_keys, dq);
      pack(at.values, at.padded_keys, x.v.at(sample * x.sequence, key_head), x.v.row_stride, x.sequence, dv);
    }
    for (std::int64_t row = 0; row < x.queries; row += at.block_rows) {
      forward_block<T, sum, tile>(at, x, sample, head, row, std::min(at.block_rows, x.queries - row));
    }
  }
}

template <class T, Sum sum>
void forward_range(AttentionForward<T> const& x, std::int64_t begin, std::int64_t end) {
  if (x.queries == 1) {
    forward_units<T, sum, 1>(x, begin, end);
  } else {
    forward_units<T, sum, chain_rows>(x, begin, end);
  }
}

void forward_float(AttentionForward<float> const& x, std::int64_t begin, std::int64_t end) {
  forward_range<float, Sum::chain>(x, begin, end);
}
void forward_tiles(AttentionForward<bfloat16> const& x, std::int64_t begin, std::int64_t end) {
#if HWY_TARGET == HWY_AVX3
  if (x.queries > 1 && amx_usable()) return forward_units_amx(x, begin, end);
#endif
  forward_range<bfloat16, Sum::tiles>(x, begin, end);
}
void forward_pairs(AttentionForward<bfloat16> const& x, std::int64_t begin, std::int64_t end) {
  forward_range<bfloat16, Sum::pairs>(x, begin, end);
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

HWY_EXPORT(forward_float);
HWY_EXPORT(forward_tiles);
HWY_EXPORT(forward_pairs);

void run(Cpu const& at, AttentionForward<float> const& x, std::int64_t units) {
  at.parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward_float)(x, begin, end);
  });
}

void run(Cpu const& at, AttentionForward<bfloat16> const& x, std::int64_t units) {
  at.parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end) {
    if (at.bf16_class() == Bf16Class::tiles) {
      HWY_DYNAMIC_DISPATCH(forward_tiles)(x, begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(forward_pairs)(x, begin, end);
    }
  });
}

template <class T>
void check(Heads<T> const& o, Heads<T const> const& q, Heads<T const> const& k, Heads<T const> const& v) {
  expects(k.heads > 0 && q.heads > 0 && q.heads % k.heads == 0, "key heads divide query heads");
  expects(v.heads == k.heads && v.rows == k.rows && q.dim == k.dim, "keys and values of the same tokens");
  expects(o.rows == q.rows && o.heads == q.heads && o.dim == v.dim, "outputs as queries, of the width of values");
}

}  // namespace

template <class T>
void attention_forward(Cpu const& at, Heads<T> o, std::span<float> lse, Heads<T const> q, Heads<T const> k,
                       Heads<T const> v, AttentionShape shape) {
  check(o, q, k, v);
  expects(q.rows == shape.samples * shape.sequence && k.rows == q.rows, "rows are samples * sequence");
  expects(static_cast<std::int64_t>(lse.size()) == q.rows * q.heads, "one lse for each row and head");
  run(at, AttentionForward<T>{o, lse.data(), q, k, v, shape.sequence, shape.sequence, shape.scale},
      shape.samples * q.heads);
}

template <class T>
void attention_decode(Cpu const& at, Heads<T> o, Heads<T const> q, Heads<T const> k, Heads<T const> v, float scale) {
  check(o, q, k, v);
  expects(q.rows == 1 && k.rows >= 1, "one new token, which is in the cache");
  run(at, AttentionForward<T>{o, nullptr, q, k, v, k.rows, 1, scale}, q.heads);
}

template void attention_forward<float>(Cpu const&, Heads<float>, std::span<float>, Heads<float const>,
                                       Heads<float const>, Heads<float const>, AttentionShape);
template void attention_forward<bfloat16>(Cpu const&, Heads<bfloat16>, std::span<float>, Heads<bfloat16 const>,
                                          Heads<bfloat16 const>, Heads<bfloat16 const>, AttentionShape);
template void attention_decode<float>(Cpu const&, Heads<float>, Heads<float const>, Heads<float const>,
                                      Heads<float const>, float);
template void attention_decode<bfloat16>(Cpu const&, Heads<bfloat16>, Heads<bfloat16 const>, Heads<bfloat16 const>,
                                         Heads<bfloat16 const>, float);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
