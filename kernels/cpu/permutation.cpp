#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/permutation.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/permutation.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

template <class T>
void gather_backward_rows(Matrix<T> dx, Matrix<T const> drouted, Matrix<std::int32_t const> row,
                          Matrix<std::int32_t const> order, Accumulate accumulate, std::int64_t begin,
                          std::int64_t end) {
  for (std::int64_t token = begin; token < end; ++token) {
    T* const out = dx.row(token);
    for_blocks(dx.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      F32x16 sum = splat(0);
      for (std::int64_t k = 0; k < row.cols; ++k) {
        sum = sum + load_first(drouted.row(row(token, order(token, k))) + i, n);
      }
      if (accumulate == Accumulate::yes) sum = sum + load_first(out + i, n);
      store_first(sum, out + i, n);
    });
  }
}

template <class T>
void combine_rows(Matrix<T> y, Matrix<T const> residual, Matrix<T const> shared, Matrix<T const> routed,
                  Matrix<float const> weight, Matrix<std::int32_t const> row, Matrix<std::int32_t const> order,
                  std::int64_t begin, std::int64_t end) {
  for (std::int64_t token = begin; token < end; ++token) {
    for_blocks(y.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      F32x16 sum = shared.empty() ? splat(0) : load_first(shared.row(token) + i, n);
      for (std::int64_t k = 0; k < row.cols; ++k) {
        std::int32_t const choice = order(token, k);
        sum = sum + splat(weight(token, choice)) * load_first(routed.row(row(token, choice)) + i, n);
      }
      store_first(load_first(residual.row(token) + i, n) + sum, y.row(token) + i, n);
    });
  }
}

template <class T>
void combine_backward_rows(Matrix<T> drouted, Matrix<float> dweight, Matrix<T const> dy, Matrix<T const> routed,
                           Matrix<float const> weight, Matrix<std::int32_t const> row, std::int64_t begin,
                           std::int64_t end) {
  for (std::int64_t token = begin; token < end; ++token) {
    T const* const gradient = dy.row(token);
    for (std::int64_t k = 0; k < row.cols; ++k) {
      T const* const value = routed.row(row(token, k));
      T* const out = drouted.row(row(token, k));
      F32x16 const factor = splat(weight(token, k));
      F32x16 products = splat(0);
      for_blocks(dy.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
        F32x16 const d = load_first(gradient + i, n);
        products = fused(d, load_first(value + i, n), products);
        store_first(factor * d, out + i, n);
      });
      dweight(token, k) = tree_sum(products);
    }
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

template <class X, class Routed>
void check(Matrix<X> x, Matrix<Routed> routed, Matrix<std::int32_t const> row) {
  expects(x.col_stride == 1 && routed.col_stride == 1 && x.cols == routed.cols, "contiguous rows of one width");
  expects(row.rows == x.rows && row.rows * row.cols == routed.rows, "K routed rows for each token");
}
template <class T>
void check_like(Matrix<T> m, std::int64_t rows, std::int64_t cols) {
  expects(m.rows == rows && m.cols == cols, "matrices that fit together");
}

}  // namespace

void permutation_sort(std::span<std::int64_t> offsets, Matrix<std::int32_t> row, Matrix<std::int32_t> order,
                      Matrix<std::int32_t const> expert, int experts, std::int64_t sample_rows) {
  check_like(row, expert.rows, expert.cols);
  check_like(order, expert.rows, expert.cols);
  expects(sample_rows >= 1 && expert.rows % sample_rows == 0, "whole samples");
  std::int64_t const samples = expert.rows / sample_rows;
  expects(static_cast<std::int64_t>(offsets.size()) == experts * samples + 1, "experts * samples + 1 offsets");
  // Counts go one place to the right, so that summing them up gives where each (expert, sample) begins; placing its
  // rows then moves each beginning to its end, which is the next one's beginning.
  std::fill(offsets.begin(), offsets.end(), 0);
  auto const bucket = [&](std::int64_t token, std::int64_t k) {
    std::int32_t const e = expert(token, k);
    expects(e >= 0 && e < experts, "expert ids below the number of experts");
    return static_cast<std::size_t>(e * samples + token / sample_rows);
  };
  for (std::int64_t token = 0; token < expert.rows; ++token) {
    for (std::int64_t k = 0; k < expert.cols; ++k) ++offsets[bucket(token, k)];
  }
  std::int64_t before = 0;
  for (auto& offset : offsets) {
    std::int64_t const count = offset;
    offset = before;
    before += count;
  }
  for (std::int64_t token = 0; token < expert.rows; ++token) {
    for (std::int64_t k = 0; k < expert.cols; ++k) {
      row(token, k) = static_cast<std::int32_t>(offsets[bucket(token, k)]++);
      std::int64_t place = k;
      for (; place > 0 && expert(token, order(token, place - 1)) > expert(token, k); --place) {
        order(token, place) = order(token, place - 1);
      }
      order(token, place) = static_cast<std::int32_t>(k);
    }
  }
  std::copy_backward(offsets.begin(), offsets.end() - 1, offsets.end());
  offsets[0] = 0;
}

template <class T>
void permutation_gather(Cpu const& at, Matrix<T> routed, Matrix<T const> x, Matrix<std::int32_t const> row) {
  check(x, routed, row);
  at.parallel_for(x.rows, rows_per_piece(x.cols * row.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      for (std::int64_t k = 0; k < row.cols; ++k) std::copy_n(x.row(token), x.cols, routed.row(row(token, k)));
    }
  });
}

template <class T>
void permutation_gather_backward(Cpu const& at, Matrix<T> dx, Matrix<T const> drouted, Matrix<std::int32_t const> row,
                                 Matrix<std::int32_t const> order, Accumulate accumulate) {
  check(dx, drouted, row);
  check_like(order, row.rows, row.cols);
  at.parallel_for(dx.rows, rows_per_piece(dx.cols * row.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(gather_backward_rows<T>)(dx, drouted, row, order, accumulate, begin, end);
  });
}

template <class T>
void permutation_combine(Cpu const& at, Matrix<T> y, Matrix<T const> residual, Matrix<T const> shared,
                         Matrix<T const> routed, Matrix<float const> weight, Matrix<std::int32_t const> row,
                         Matrix<std::int32_t const> order) {
  check(y, routed, row);
  check(residual, routed, row);
  if (!shared.empty()) check(shared, routed, row);
  check_like(weight, row.rows, row.cols);
  check_like(order, row.rows, row.cols);
  at.parallel_for(y.rows, rows_per_piece(y.cols * row.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(combine_rows<T>)(y, residual, shared, routed, weight, row, order, begin, end);
  });
}

template <class T>
void permutation_combine_backward(Cpu const& at, Matrix<T> drouted, Matrix<float> dweight, Matrix<T const> dy,
                                  Matrix<T const> routed, Matrix<float const> weight, Matrix<std::int32_t const> row) {
  check(dy, routed, row);
  check(dy, drouted, row);
  check_like(weight, row.rows, row.cols);
  check_like(dweight, row.rows, row.cols);
  at.parallel_for(dy.rows, rows_per_piece(dy.cols * row.cols), [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(combine_backward_rows<T>)(drouted, dweight, dy, routed, weight, row, begin, end);
  });
}

template void permutation_gather(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<std::int32_t const>);
template void permutation_gather(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, Matrix<std::int32_t const>);
template void permutation_gather_backward(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<std::int32_t const>,
                                          Matrix<std::int32_t const>, Accumulate);
template void permutation_gather_backward(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>,
                                          Matrix<std::int32_t const>, Matrix<std::int32_t const>, Accumulate);
template void permutation_combine(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<float const>,
                                  Matrix<float const>, Matrix<float const>, Matrix<std::int32_t const>,
                                  Matrix<std::int32_t const>);
template void permutation_combine(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, Matrix<bfloat16 const>,
                                  Matrix<bfloat16 const>, Matrix<float const>, Matrix<std::int32_t const>,
                                  Matrix<std::int32_t const>);
template void permutation_combine_backward(Cpu const&, Matrix<float>, Matrix<float>, Matrix<float const>,
                                           Matrix<float const>, Matrix<float const>, Matrix<std::int32_t const>);
template void permutation_combine_backward(Cpu const&, Matrix<bfloat16>, Matrix<float>, Matrix<bfloat16 const>,
                                           Matrix<bfloat16 const>, Matrix<float const>, Matrix<std::int32_t const>);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
