#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/cpu/cross_entropy-inl.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cross_entropy.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Sum of exp(logit - maximum), Tree over runs.
template <class Each>
HWY_INLINE float row_sum(float const* logits, std::int64_t count, std::int64_t run, float maximum, Each const& each) {
  Tree<float> runs;
  for (std::int64_t first = 0; first < count; first += run) {
    runs.add(run_sum(logits, first, std::min(first + run, count), maximum, each));
  }
  return runs.total();
}

inline void loss_rows(float* loss, Matrix<float const> logits, std::int32_t const* target, std::int64_t run,
                      std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (target[row] == ignored_target) {
      loss[row] = 0;
      continue;
    }
    float const maximum = row_maximum(logits.row(row), logits.cols);
    float const sum = row_sum(logits.row(row), logits.cols, run, maximum,
                              [](F32x16, std::int64_t, std::int64_t) ISOTRAIN_INLINE_LAMBDA {});
    loss[row] = logarithm(sum) + (maximum - logits(row, target[row]));
  }
}

/// `exponentials` has room for a row; from the second cache they come faster than they are computed again.
template <class T>
void loss_gradient_rows(float* loss, Matrix<T> dlogits, Matrix<float const> logits, std::int32_t const* target,
                        float* exponentials, std::int64_t run, float scale, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    T* const out = dlogits.row(row);
    std::int32_t const chosen = target[row];
    if (chosen == ignored_target) {
      loss[row] = 0;
      std::fill_n(out, logits.cols, T{});
      continue;
    }
    float const maximum = row_maximum(logits.row(row), logits.cols);
    float const sum = row_sum(logits.row(row), logits.cols, run, maximum,
                              [&](F32x16 e, std::int64_t i, std::int64_t n)
                                  ISOTRAIN_INLINE_LAMBDA { store_first(e, exponentials + i, n); });
    loss[row] = logarithm(sum) + (maximum - logits(row, chosen));
    float const factor = scale / sum;
    for_blocks(logits.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      store_first(load_first(exponentials + i, n) * splat(factor), out + i, n);
    });
    out[chosen] = from_float<T>(exponentials[chosen] * factor - scale);
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

std::int64_t check(std::span<float> loss, Matrix<float const> logits, std::span<std::int32_t const> target,
                   int slices) {
  expects(logits.col_stride == 1, "contiguous rows");
  expects(logits.cols >= 1, "a vocabulary");
  expects(slices >= 1, "at least one slice");
  expects(loss.size() == static_cast<std::size_t>(logits.rows) && target.size() == loss.size(),
          "one target and one loss for each row");
  for (std::int32_t const t : target) {
    expects(t == ignored_target || (t >= 0 && t < logits.cols), "targets inside the vocabulary");
  }
  return (logits.cols + slices - 1) / slices;
}

}  // namespace

void cross_entropy_forward(Cpu const& at, std::span<float> loss, Matrix<float const> logits,
                           std::span<std::int32_t const> target, int slices) {
  std::int64_t const run = check(loss, logits, target, slices);
  at.parallel_for(logits.rows, rows_per_piece(logits.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(loss_rows)(loss.data(), logits, target.data(), run, begin, end);
  });
}

template <class T>
void cross_entropy_forward_backward(Cpu const& at, std::span<float> loss, Matrix<T> dlogits, Matrix<float const> logits,
                                    std::span<std::int32_t const> target, int slices, float scale) {
  std::int64_t const run = check(loss, logits, target, slices);
  expects(dlogits.rows == logits.rows && dlogits.cols == logits.cols && dlogits.col_stride == 1,
          "a gradient of the logits' shape");
  at.parallel_for(logits.rows, rows_per_piece(logits.cols), [&](std::int64_t begin, std::int64_t end) {
    static thread_local Scratch scratch;
    float* exponentials;
    scratch.cut({{&exponentials, logits.cols}});
    ISOTRAIN_DISPATCH(loss_gradient_rows<T>)
    (loss.data(), dlogits, logits, target.data(), exponentials, run, scale, begin, end);
  });
}

template void cross_entropy_forward_backward(Cpu const&, std::span<float>, Matrix<float>, Matrix<float const>,
                                             std::span<std::int32_t const>, int, float);
template void cross_entropy_forward_backward(Cpu const&, std::span<float>, Matrix<bfloat16>, Matrix<float const>,
                                             std::span<std::int32_t const>, int, float);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
