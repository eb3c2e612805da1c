// What the forward pass of attention does to rows of scores, however they were multiplied. Included once per Highway
// target.
#if defined(ISOTRAIN_KERNELS_ATTENTION_SOFTMAX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_ATTENTION_SOFTMAX_INL
#undef ISOTRAIN_KERNELS_ATTENTION_SOFTMAX_INL
#else
#define ISOTRAIN_KERNELS_ATTENTION_SOFTMAX_INL
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention-panels-inl.h"
#include "kernels/cpu/attention_arguments.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// The first query rows of a block fit a few MiB of scores however long the sequence is.
inline std::int64_t rows_of_block(std::int64_t queries, std::int64_t keys) {
  if (queries == 1) return 1;
  std::int64_t const fitting = (std::int64_t{1} << 19) / std::max<std::int64_t>(keys, 1) / 16 * 16;
  return std::clamp<std::int64_t>(fitting, 16, 64);
}

/// A block of query rows, row 0 at position `first`: its scores in panels of `width` keys, and what is known of its
/// rows.
template <std::int64_t width>
struct ScoreRows {
  std::int64_t first;
  float scale;
  float* scores;
  std::int64_t stride;    // from panel to panel
  float *maximum, *sums;  // (rows, 16)

  /// Sixteen scores, from key 16 * part on.
  float* at(std::int64_t part, std::int64_t r) const {
    return scores + part * 16 / width * stride + r * width + part * 16 % width;
  }
  /// The first row that sees a key of the panel that holds a part.
  std::int64_t first_row(std::int64_t part) const {
    return std::max<std::int64_t>(0, part * 16 / width * width - first);
  }
  /// How many of the sixteen keys a row sees.
  std::int64_t visible(std::int64_t part, std::int64_t r) const { return first + r - part * 16 + 1; }
};

template <std::int64_t width>
void start_maxima(ScoreRows<width> const& x, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) store(splat(-std::numeric_limits<float>::infinity()), x.maximum + r * 16);
}

/// Takes parts of all rows that see them into their maxima, lane by lane.
template <std::int64_t width>
void add_to_maxima(ScoreRows<width> const& x, std::int64_t rows, std::int64_t begin_part, std::int64_t end_part) {
  F32x16 const factor = splat(x.scale);
  for (std::int64_t part = begin_part; part < end_part; ++part) {
    for (std::int64_t r = x.first_row(part); r < rows; ++r) {
      F32x16 z = load(x.at(part, r)) * factor;
      if (x.visible(part, r) < 16) z = first_lanes(z, x.visible(part, r), -std::numeric_limits<float>::infinity());
      store(larger(z, load(x.maximum + r * 16)), x.maximum + r * 16);
    }
  }
}

/// One maximum for each row; starts the sums.
template <std::int64_t width>
void finish_maxima(ScoreRows<width> const& x, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) {
    store(splat(largest(load(x.maximum + r * 16))), x.maximum + r * 16);
    store(splat(0.0F), x.sums + r * 16);
  }
}

/// Scores to probabilities, in place, as T holds them; adds them to their rows' sums.
template <class T, std::int64_t width>
void exponentiate(ScoreRows<width> const& x, std::int64_t rows, std::int64_t begin_part, std::int64_t end_part) {
  F32x16 const factor = splat(x.scale);
  for (std::int64_t part = begin_part; part < end_part; ++part) {
    for (std::int64_t r = x.first_row(part); r < rows; ++r) {
      float* z = x.at(part, r);
      F32x16 probability = exponential(load(z) * factor - load(x.maximum + r * 16));
      if (x.visible(part, r) < 16) probability = first_lanes(probability, x.visible(part, r), 0.0F);
      store(load(x.sums + r * 16) + probability, x.sums + r * 16);
      store(rounded<T>(probability), z);
    }
  }
}

/// o and lse of query rows [row, row + rows) of a head, from the products of probabilities and values: sixteen at
/// products + r * row_step, the next sixteen `stride` from there.
template <class T, std::int64_t width>
void finish_rows(ScoreRows<width> const& block, AttentionForward<T> const& x, std::int64_t sample, std::int64_t head,
                 std::int64_t row, std::int64_t rows, float const* products, std::int64_t row_step,
                 std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float const total = tree_sum(load(block.sums + r * 16));
    unpack_row(x.o.at(sample * x.queries + row + r, head), products + r * row_step, stride, x.v.dim,
               splat(1.0F / total));
    if (x.lse != nullptr) {
      x.lse[(sample * x.q.heads + head) * x.queries + row + r] = block.maximum[r * 16] + logarithm(total);
    }
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
