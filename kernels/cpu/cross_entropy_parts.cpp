// The cross-entropy over a part of the vocabulary.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy_parts.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/cpu/cross_entropy-inl.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cross_entropy.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

inline void max_rows(float* max, float* target_logit, Matrix<float const> logits, std::int32_t const* target,
                     VocabularyPart const& part, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    max[row] = row_maximum(logits.row(row), logits.cols);
    std::int64_t const chosen = target[row] - part.begin();
    bool const is_here = target[row] != ignored_target && chosen >= 0 && chosen < logits.cols;
    target_logit[row] = is_here ? logits(row, chosen) : lowest;
  }
}

inline void sum_rows(Matrix<float> sums, Matrix<float const> logits, float const* max, std::int32_t const* target,
                     std::int64_t run, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t slice = 0; slice < sums.cols; ++slice) {
      std::int64_t const first = std::min(logits.cols, slice * run);
      std::int64_t const last = std::min(logits.cols, first + run);
      sums(row, slice) = target[row] == ignored_target
                             ? 0
                             : run_sum(logits.row(row), first, last, max[row],
                                       [](F32x16, std::int64_t, std::int64_t) ISOTRAIN_INLINE_LAMBDA {});
    }
  }
}

template <class T>
void finish_rows(float* loss, Matrix<T> dlogits, Matrix<float const> logits, float const* max, Matrix<float const> sums,
                 float const* target_logit, std::int32_t const* target, VocabularyPart const& part, float scale,
                 std::int64_t begin, std::int64_t end) {
  std::int64_t const num_runs = (part.vocabulary + part.run() - 1) / part.run();
  for (std::int64_t row = begin; row < end; ++row) {
    if (target[row] == ignored_target) {
      loss[row] = 0;
      if (!dlogits.empty()) std::fill_n(dlogits.row(row), dlogits.cols, T{});
      continue;
    }
    Tree<float> runs;
    for (std::int64_t slice = 0; slice < num_runs; ++slice) runs.add(sums(row, slice));
    float const sum = runs.total();
    loss[row] = logarithm(sum) + (max[row] - target_logit[row]);
    if (dlogits.empty()) continue;
    F32x16 const shift = splat(max[row]), factor = splat(scale / sum);
    T* const out = dlogits.row(row);
    for_blocks(logits.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      store_first(exponential(load_first(logits.row(row) + i, n, lowest) - shift) * factor, out + i, n);
    });
    std::int64_t const chosen = target[row] - part.begin();
    if (chosen < 0 || chosen >= logits.cols) continue;
    float lanes[block_lanes];
    store(exponential(splat(target_logit[row]) - shift) * factor, lanes);
    out[chosen] = from_float<T>(lanes[0] - scale);
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

void check(Matrix<float const> logits, std::size_t num_max, std::span<std::int32_t const> target,
           VocabularyPart const& part) {
  expects(part.vocabulary >= 1 && part.slices >= 1 && part.first_slice >= 0 && part.first_slice <= part.end_slice &&
              part.end_slice <= part.slices,
          "a part of a vocabulary");
  expects(logits.cols == part.columns(), "the part's columns of the logits");
  expects(logits.col_stride == 1, "contiguous rows");
  expects(num_max == static_cast<std::size_t>(logits.rows) && target.size() == num_max,
          "one target and one maximum for each row");
  for (std::int32_t const t : target) {
    expects(t == ignored_target || (t >= 0 && t < part.vocabulary), "targets inside the vocabulary");
  }
}

}  // namespace

void cross_entropy_max(Cpu const& at, std::span<float> max, std::span<float> target_logit, Matrix<float const> logits,
                       std::span<std::int32_t const> target, VocabularyPart const& part) {
  check(logits, max.size(), target, part);
  expects(target_logit.size() == max.size(), "one logit of the target for each row");
  at.parallel_for(logits.rows, rows_per_piece(logits.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(max_rows)(max.data(), target_logit.data(), logits, target.data(), part, begin, end);
  });
}

void cross_entropy_sums(Cpu const& at, Matrix<float> sums, Matrix<float const> logits, std::span<float const> max,
                        std::span<std::int32_t const> target, VocabularyPart const& part) {
  check(logits, max.size(), target, part);
  expects(sums.rows == logits.rows && sums.cols == part.num_slices(), "a sum for each row and slice of the part");
  at.parallel_for(logits.rows, rows_per_piece(logits.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(sum_rows)(sums, logits, max.data(), target.data(), part.run(), begin, end);
  });
}

template <class T>
void cross_entropy_finish(Cpu const& at, std::span<float> loss, Matrix<T> dlogits, Matrix<float const> logits,
                          std::span<float const> max, Matrix<float const> sums, std::span<float const> target_logit,
                          std::span<std::int32_t const> target, VocabularyPart const& part, float scale) {
  check(logits, max.size(), target, part);
  expects(loss.size() == max.size() && target_logit.size() == max.size(),
          "one loss and one logit of the target for each row");
  expects(sums.rows == logits.rows && sums.cols == part.slices, "a sum for each row and slice of the vocabulary");
  expects(dlogits.empty() || (dlogits.rows == logits.rows && dlogits.cols == logits.cols && dlogits.col_stride == 1),
          "a gradient of the logits' shape");
  at.parallel_for(logits.rows, rows_per_piece(logits.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(finish_rows<T>)
    (loss.data(), dlogits, logits, max.data(), sums, target_logit.data(), target.data(), part, scale, begin, end);
  });
}

template void cross_entropy_finish(Cpu const&, std::span<float>, Matrix<float>, Matrix<float const>,
                                   std::span<float const>, Matrix<float const>, std::span<float const>,
                                   std::span<std::int32_t const>, VocabularyPart const&, float);
template void cross_entropy_finish(Cpu const&, std::span<float>, Matrix<bfloat16>, Matrix<float const>,
                                   std::span<float const>, Matrix<float const>, std::span<float const>,
                                   std::span<std::int32_t const>, VocabularyPart const&, float);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
