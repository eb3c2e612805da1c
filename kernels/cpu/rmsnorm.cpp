#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rmsnorm.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/rmsnorm.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

template <class T>
float row_rstd(T const* x, std::int64_t d, float epsilon) {
  F32x16 squares = splat(0);
  for_blocks(d, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    F32x16 const v = load_first(x + i, n);
    squares = fused(v, v, squares);
  });
  return 1.0F / std::sqrt(tree_sum(squares) / static_cast<float>(d) + epsilon);
}

template <class T>
void apply_row(T* y, T const* x, float const* gain, float rstd, std::int64_t d) {
  F32x16 const factor = splat(rstd);
  for_blocks(d, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    store_first(load_first(gain + i, n) * (load_first(x + i, n) * factor), y + i, n);
  });
}

template <class T>
void forward_rows(Matrix<T> y, float* rstd, Matrix<T const> x, float const* gain, float epsilon, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    rstd[row] = row_rstd(x.row(row), x.cols, epsilon);
    apply_row(y.row(row), x.row(row), gain, rstd[row], x.cols);
  }
}

template <class T>
void apply_rows(Matrix<T> y, float const* rstd, Matrix<T const> x, float const* gain, std::int64_t begin,
                std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) apply_row(y.row(row), x.row(row), gain, rstd[row], x.cols);
}

template <class T>
void backward_input_rows(Matrix<T> dx, Matrix<T const> dy, Matrix<T const> x, float const* rstd, float const* gain,
                         Accumulate accumulate, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    T* const out = dx.row(row);
    T const* const dy_row = dy.row(row);
    T const* const x_row = x.row(row);
    F32x16 products = splat(0);
    for_blocks(x.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      products = fused(load_first(gain + i, n) * load_first(dy_row + i, n), load_first(x_row + i, n), products);
    });
    float const r = rstd[row];
    F32x16 const scale = splat(r);
    F32x16 const along_x = splat(-(r * r * r / static_cast<float>(x.cols) * tree_sum(products)));
    for_blocks(x.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      F32x16 const g = load_first(gain + i, n) * load_first(dy_row + i, n);
      F32x16 v = fused(along_x, load_first(x_row + i, n), scale * g);
      if (accumulate == Accumulate::yes) v = load_first(out + i, n) + v;
      store_first(v, out + i, n);
    });
  }
}

/// body(std::integral_constant<int, Blocks>, first, count) for groups of Blocks blocks of columns [begin, end).
template <class Body>
HWY_INLINE void for_wide_blocks(std::int64_t begin, std::int64_t end, Body const& body) {
  constexpr std::integral_constant<int, 8> wide;
  std::int64_t column = begin;
  for (; column + wide * block_lanes <= end; column += wide * block_lanes) body(wide, column, wide * block_lanes);
  for_blocks(column, end, [&](std::int64_t i, std::int64_t n) { body(std::integral_constant<int, 1>(), i, n); });
}

/// Columns [begin, end) of the gain's gradient: a chain over the rows for each.
template <class T>
void backward_gain_columns(float* dgain, Matrix<T const> dy, Matrix<T const> x, float const* rstd, std::int64_t begin,
                           std::int64_t end) {
  for_wide_blocks(begin, end, [&](auto blocks, std::int64_t column, std::int64_t count) {
    std::int64_t const n = blocks == 1 ? count : block_lanes;
    F32x16 sum[blocks];
    for (int b = 0; b < blocks; ++b) sum[b] = load_first(dgain + column + b * block_lanes, n);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      F32x16 const factor = splat(rstd[row]);
      for (int b = 0; b < blocks; ++b) {
        std::int64_t const i = column + b * block_lanes;
        sum[b] = fused(load_first(dy.row(row) + i, n), load_first(x.row(row) + i, n) * factor, sum[b]);
      }
    }
    for (int b = 0; b < blocks; ++b) store_first(sum[b], dgain + column + b * block_lanes, n);
  });
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

template <class T>
void check(Matrix<T const> x, Matrix<T const> y, std::size_t num_rstd, std::size_t num_gain) {
  expects(x.rows == y.rows && x.cols == y.cols, "inputs and outputs of one shape");
  expects(x.col_stride == 1 && y.col_stride == 1, "contiguous rows");
  expects(num_rstd == static_cast<std::size_t>(x.rows), "one rstd for each row");
  expects(num_gain == static_cast<std::size_t>(x.cols), "one gain for each column");
}

}  // namespace

template <class T>
void rmsnorm_forward(Cpu const& at, Matrix<T> y, std::span<float> rstd, Matrix<T const> x, std::span<float const> gain,
                     float epsilon) {
  check<T>(x, y, rstd.size(), gain.size());
  at.parallel_for(x.rows, rows_per_piece(x.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(forward_rows<T>)(y, rstd.data(), x, gain.data(), epsilon, begin, end);
  });
}

template <class T>
void rmsnorm_apply(Cpu const& at, Matrix<T> y, std::span<float const> rstd, Matrix<T const> x,
                   std::span<float const> gain) {
  check<T>(x, y, rstd.size(), gain.size());
  at.parallel_for(x.rows, rows_per_piece(x.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(apply_rows<T>)(y, rstd.data(), x, gain.data(), begin, end);
  });
}

template <class T>
void rmsnorm_backward_input(Cpu const& at, Matrix<T> dx, Matrix<T const> dy, Matrix<T const> x,
                            std::span<float const> rstd, std::span<float const> gain, Accumulate accumulate) {
  check<T>(x, dx, rstd.size(), gain.size());
  check<T>(x, dy, rstd.size(), gain.size());
  at.parallel_for(x.rows, rows_per_piece(x.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(backward_input_rows<T>)(dx, dy, x, rstd.data(), gain.data(), accumulate, begin, end);
  });
}

template <class T>
void rmsnorm_backward_gain(Cpu const& at, std::span<float> dgain, Matrix<T const> dy, Matrix<T const> x,
                           std::span<float const> rstd) {
  check<T>(x, dy, rstd.size(), dgain.size());
  at.parallel_for(x.cols, 128, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(backward_gain_columns<T>)(dgain.data(), dy, x, rstd.data(), begin, end);
  });
}

template void rmsnorm_forward(Cpu const&, Matrix<float>, std::span<float>, Matrix<float const>, std::span<float const>,
                              float);
template void rmsnorm_forward(Cpu const&, Matrix<bfloat16>, std::span<float>, Matrix<bfloat16 const>,
                              std::span<float const>, float);
template void rmsnorm_apply(Cpu const&, Matrix<float>, std::span<float const>, Matrix<float const>,
                            std::span<float const>);
template void rmsnorm_apply(Cpu const&, Matrix<bfloat16>, std::span<float const>, Matrix<bfloat16 const>,
                            std::span<float const>);
template void rmsnorm_backward_input(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<float const>,
                                     std::span<float const>, std::span<float const>, Accumulate);
template void rmsnorm_backward_input(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, Matrix<bfloat16 const>,
                                     std::span<float const>, std::span<float const>, Accumulate);
template void rmsnorm_backward_gain(Cpu const&, std::span<float>, Matrix<float const>, Matrix<float const>,
                                    std::span<float const>);
template void rmsnorm_backward_gain(Cpu const&, std::span<float>, Matrix<bfloat16 const>, Matrix<bfloat16 const>,
                                    std::span<float const>);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
