#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/swiglu.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

template <class T>
void swiglu_rows(Matrix<T> y, Matrix<T const> gate, Matrix<T const> up, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for_blocks(y.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      F32x16 const g = load_first(gate.row(row) + i, n);
      store_first(g * sigmoid(g) * load_first(up.row(row) + i, n), y.row(row) + i, n);
    });
  }
}

template <class T>
void swiglu_backward_rows(Matrix<T> dgate, Matrix<T> dup, Matrix<T const> dy, Matrix<T const> gate, Matrix<T const> up,
                          std::int64_t begin, std::int64_t end) {
  F32x16 const one = splat(1);
  for (std::int64_t row = begin; row < end; ++row) {
    for_blocks(dy.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      F32x16 const g = load_first(gate.row(row) + i, n);
      F32x16 const u = load_first(up.row(row) + i, n);
      F32x16 const d = load_first(dy.row(row) + i, n);
      F32x16 const s = sigmoid(g);
      store_first(d * (g * s), dup.row(row) + i, n);
      store_first(d * u * s * fused(g, one - s, one), dgate.row(row) + i, n);
    });
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

template <class T>
void check(Matrix<T const> a, Matrix<T const> b) {
  expects(a.rows == b.rows && a.cols == b.cols, "matrices of one shape");
  expects(a.col_stride == 1 && b.col_stride == 1, "contiguous rows");
}

}  // namespace

template <class T>
void swiglu_forward(Cpu const& at, Matrix<T> y, Matrix<T const> gate, Matrix<T const> up) {
  check<T>(y, gate);
  check<T>(y, up);
  at.parallel_for(y.rows, rows_per_piece(y.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(swiglu_rows<T>)(y, gate, up, begin, end);
  });
}

template <class T>
void swiglu_backward(Cpu const& at, Matrix<T> dgate, Matrix<T> dup, Matrix<T const> dy, Matrix<T const> gate,
                     Matrix<T const> up) {
  check<T>(dy, dgate);
  check<T>(dy, dup);
  check<T>(dy, gate);
  check<T>(dy, up);
  at.parallel_for(dy.rows, rows_per_piece(dy.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(swiglu_backward_rows<T>)(dgate, dup, dy, gate, up, begin, end);
  });
}

template void swiglu_forward(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<float const>);
template void swiglu_forward(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, Matrix<bfloat16 const>);
template void swiglu_backward(Cpu const&, Matrix<float>, Matrix<float>, Matrix<float const>, Matrix<float const>,
                              Matrix<float const>);
template void swiglu_backward(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16>, Matrix<bfloat16 const>,
                              Matrix<bfloat16 const>, Matrix<bfloat16 const>);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
