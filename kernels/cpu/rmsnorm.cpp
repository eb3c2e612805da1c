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

/// `Blocks` blocks of 16 columns, whose partial sums fit the registers.
template <int Blocks>
struct Columns {
  F32x16 block[Blocks];

  friend HWY_INLINE Columns operator+(Columns const& a, Columns const& b) {
    Columns sum;
    for (int b_index = 0; b_index < Blocks; ++b_index) sum.block[b_index] = a.block[b_index] + b.block[b_index];
    return sum;
  }
};

/// Continues the chains of the gain's gradient for columns [column, column + 16 Blocks) over rows [begin, end). `n`
/// columns only if Blocks is 1.
template <int Blocks, class T>
HWY_INLINE void gain_chain(Columns<Blocks>& sum, Matrix<T const> dy, Matrix<T const> x, float const* rstd,
                           std::int64_t begin, std::int64_t end, std::int64_t column, std::int64_t n) {
  for (std::int64_t row = begin; row < end; ++row) {
    F32x16 const factor = splat(rstd[row]);
    for (int b = 0; b < Blocks; ++b) {
      std::int64_t const i = column + b * block_lanes;
      sum.block[b] = fused(load_first(dy.row(row) + i, n), load_first(x.row(row) + i, n) * factor, sum.block[b]);
    }
  }
}

/// Columns [column, column + 16 Blocks) of the gain's gradient, fewer than that only if Blocks is 1.
template <int Blocks, class T>
void backward_gain_columns(float* dgain, Matrix<T const> dy, Matrix<T const> x, float const* rstd,
                           std::int64_t sample_rows, std::int64_t run, std::int64_t column, std::int64_t count) {
  std::int64_t const n = Blocks == 1 ? count : block_lanes;
  for (std::int64_t sample = 0; sample < x.rows; sample += sample_rows) {
    Tree<Columns<Blocks>> runs;
    for (std::int64_t first = sample; first < sample + sample_rows; first += run) {
      Columns<Blocks> sum;
      for (auto& block : sum.block) block = splat(0);
      gain_chain(sum, dy, x, rstd, first, std::min(first + run, sample + sample_rows), column, n);
      runs.add(sum);
    }
    Columns<Blocks> const total = runs.total();
    for (int b = 0; b < Blocks; ++b) {
      float* const out = dgain + column + b * block_lanes;
      store_first(load_first(out, n) + total.block[b], out, n);
    }
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

template <class T>
void backward_gain_range(float* dgain, Matrix<T const> dy, Matrix<T const> x, float const* rstd,
                         std::int64_t sample_rows, std::int64_t run, std::int64_t begin, std::int64_t end) {
  for_wide_blocks(begin, end, [&](auto blocks, std::int64_t column, std::int64_t count) {
    backward_gain_columns<blocks>(dgain, dy, x, rstd, sample_rows, run, column, count);
  });
}

template <class T>
void gain_chain_range(float* dgain, Matrix<T const> dy, Matrix<T const> x, float const* rstd, std::int64_t begin,
                      std::int64_t end) {
  for_wide_blocks(begin, end, [&](auto blocks, std::int64_t column, std::int64_t count) {
    std::int64_t const n = blocks == 1 ? count : block_lanes;
    Columns<blocks> sum;
    for (int b = 0; b < blocks; ++b) sum.block[b] = load_first(dgain + column + b * block_lanes, n);
    gain_chain(sum, dy, x, rstd, 0, x.rows, column, n);
    for (int b = 0; b < blocks; ++b) store_first(sum.block[b], dgain + column + b * block_lanes, n);
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
                           std::span<float const> rstd, std::int64_t sample_rows, int slices) {
  check<T>(x, dy, rstd.size(), dgain.size());
  expects(slices >= 1, "at least one slice");
  if (x.rows == 0) return;
  expects(sample_rows >= 1 && x.rows % sample_rows == 0, "whole samples");
  std::int64_t const run = (sample_rows + slices - 1) / slices;
  at.parallel_for(x.cols, 128, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(backward_gain_range<T>)(dgain.data(), dy, x, rstd.data(), sample_rows, run, begin, end);
  });
}

template <class T>
void rmsnorm_backward_gain_chain(Cpu const& at, std::span<float> dgain, Matrix<T const> dy, Matrix<T const> x,
                                 std::span<float const> rstd) {
  check<T>(x, dy, rstd.size(), dgain.size());
  at.parallel_for(x.cols, 128, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(gain_chain_range<T>)(dgain.data(), dy, x, rstd.data(), begin, end);
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
                                    std::span<float const>, std::int64_t, int);
template void rmsnorm_backward_gain(Cpu const&, std::span<float>, Matrix<bfloat16 const>, Matrix<bfloat16 const>,
                                    std::span<float const>, std::int64_t, int);
template void rmsnorm_backward_gain_chain(Cpu const&, std::span<float>, Matrix<float const>, Matrix<float const>,
                                          std::span<float const>);
template void rmsnorm_backward_gain_chain(Cpu const&, std::span<float>, Matrix<bfloat16 const>, Matrix<bfloat16 const>,
                                          std::span<float const>);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
