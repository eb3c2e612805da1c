// What the start-up check calls for a product: pieces where a model has pieces.
#include <algorithm>
#include <vector>

#include "kernels/selfcheck.h"

namespace isotrain::kernels {
namespace {

/// A copy of m behind what `memory` has, which must have room: rows stay contiguous if they are.
template <class T>
Matrix<T const> copied(std::vector<T>& memory, Matrix<T const> m) {
  bool const by_rows = m.col_stride == 1;
  T* const data = memory.data() + memory.size();
  Matrix<T const> const from = by_rows ? m : m.transposed();
  for (std::int64_t r = 0; r < from.rows; ++r) {
    for (std::int64_t c = 0; c < from.cols; ++c) memory.push_back(from(r, c));
  }
  Matrix<T const> const copy(data, from.rows, from.cols);
  return by_rows ? copy : copy.transposed();
}

}  // namespace

template <class T>
void product_of_model(Cpu const& at, Matrix<float> c, Matrix<T const> a, Matrix<T const> b, Accumulate accumulate,
                      MatmulSum sum) {
  if (sum.slices == 1 || sum.leaf > 0 || accumulate == Accumulate::yes) {
    return matmul(at, c, a, b, accumulate, sum);
  }
  // To copy the largest would take longer than to check them.
  constexpr std::int64_t most_copied = std::int64_t{1} << 18;
  bool const copies = std::max(a.rows, b.cols) * a.cols <= most_copied;
  std::int64_t const run = (a.cols + sum.slices - 1) / sum.slices;
  std::vector<T> left, right;
  left.reserve(copies ? static_cast<std::size_t>(a.rows * a.cols) : 0);
  right.reserve(copies ? static_cast<std::size_t>(b.rows * b.cols) : 0);
  std::vector<Product<T>> products(static_cast<std::size_t>(sum.slices));
  // Last slice first: no slice's memory is followed by the next one's.
  for (int slice = sum.slices; slice-- > 0;) {
    std::int64_t const begin = std::min(a.cols, slice * run);
    std::int64_t const count = std::min(a.cols - begin, run);
    Product<T> piece{a.slice_cols(begin, count), b.slice_rows(begin, count)};
    if (copies) piece = {copied(left, piece.a), copied(right, piece.b)};
    products[static_cast<std::size_t>(slice)] = piece;
  }
  matmul_sliced<T, float>(at, c, products, sum.slices);
}

template void product_of_model(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<float const>, Accumulate,
                               MatmulSum);
template void product_of_model(Cpu const&, Matrix<float>, Matrix<bfloat16 const>, Matrix<bfloat16 const>, Accumulate,
                               MatmulSum);

}  // namespace isotrain::kernels
