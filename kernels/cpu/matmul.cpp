#include "kernels/matmul.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/matmul_part.h"
#include "lib/base/error.h"

namespace isotrain::kernels {
namespace {

/// The products of a call. One for each thread, so that a step allocates nothing once it has run.
template <class T>
struct Products {
  std::vector<Product<T>> list;
  std::vector<std::int64_t> lengths;

  static Products& empty() {
    static thread_local Products products;
    products.list.clear();
    products.lengths.clear();
    return products;
  }
  void add(Matrix<T const> a, Matrix<T const> b) {
    list.push_back({a, b});
    lengths.push_back(a.cols);
  }
};

/// The sum over `products`. Rows and columns of all are exchanged if C's rows are contiguous then and were not before.
template <class T, class Out>
void multiply(Cpu const& at, Matrix<Out> c, Products<T>& products, int slices, std::int64_t leaf, Accumulate accumulate,
              Matrix<Out const> residual) {
  if (c.empty()) return;
  if (c.col_stride != 1 && c.row_stride == 1) {
    c = c.transposed();
    residual = residual.transposed();
    for (Product<T>& product : products.list) product = {product.b.transposed(), product.a.transposed()};
  }
  int const per_slice = static_cast<int>(products.list.size()) / slices;
  struct {
    gemm::Sum<T, Out> sum;
    gemm::TileShape tile;
    gemm::Grid grid;
    Bf16Class bf16;
  } job{{c, products.list, {products.lengths, per_slice, leaf}, accumulate == Accumulate::yes, residual},
        gemm::tile_shape<T>(at.bf16_class()),
        {},
        at.bf16_class()};
  job.grid = gemm::choose_grid(at.threads(), job.tile, c.rows, c.cols, job.sum.cuts.length());
  // One reference is all that is captured, so that std::function allocates nothing.
  at.parallel_for(job.grid.parts(), 1, [&job](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      int const row_part = static_cast<int>(part) / job.grid.cols;
      int const col_part = static_cast<int>(part) % job.grid.cols;
      gemm::multiply_part(job.sum, gemm::cut(job.sum.c.rows, job.grid.rows, row_part, job.tile.rows),
                          gemm::cut(job.sum.c.cols, job.grid.cols, col_part, job.tile.cols), job.bf16);
    }
  });
}

template <class Out>
void check_residual(Matrix<Out> c, Matrix<Out const> residual) {
  expects(!residual.data || (residual.rows == c.rows && residual.cols == c.cols), "the residual has the shape of C");
}

template <class T, class Out>
void check_shapes(Matrix<Out> c, Matrix<T const> a, Matrix<T const> b) {
  expects(a.rows == c.rows && b.cols == c.cols && a.cols == b.rows, "the shapes of A, B and C fit");
}

}  // namespace

template <class T, class Out>
void matmul(Cpu const& at, Matrix<Out> c, Matrix<T const> a, Matrix<T const> b, Accumulate accumulate, MatmulSum sum,
            Matrix<Out const> residual) {
  check_shapes(c, a, b);
  check_residual(c, residual);
  expects(sum.slices >= 1 && sum.leaf >= 0, "a sum has at least one slice and no negative leaf");
  expects(accumulate == Accumulate::no || (sum.slices == 1 && !residual.data),
          "a product that adds to C has neither slices nor a residual");
  expects(accumulate == Accumulate::no || std::is_same_v<Out, float>, "only an fp32 C is added to");
  auto& products = Products<T>::empty();
  std::int64_t const run = (a.cols + sum.slices - 1) / sum.slices;
  for (int slice = 0; slice < sum.slices; ++slice) {
    std::int64_t const begin = std::min(a.cols, slice * run);
    std::int64_t const count = std::min(a.cols - begin, run);
    products.add(a.slice_cols(begin, count), b.slice_rows(begin, count));
  }
  multiply(at, c, products, sum.slices, sum.leaf, accumulate, residual);
}

template <class T, class Out>
void matmul_sliced(Cpu const& at, Matrix<Out> c, std::span<Product<T> const> products, int slices,
                   Matrix<Out const> residual) {
  expects(slices >= 1 && !products.empty() && products.size() % static_cast<std::size_t>(slices) == 0,
          "as many products in each slice, at least one");
  check_residual(c, residual);
  auto& list = Products<T>::empty();
  for (Product<T> const& product : products) {
    check_shapes(c, product.a, product.b);
    list.add(product.a, product.b);
  }
  multiply(at, c, list, slices, 0, Accumulate::no, residual);
}

template void matmul(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<float const>, Accumulate, MatmulSum,
                     Matrix<float const>);
template void matmul(Cpu const&, Matrix<float>, Matrix<bfloat16 const>, Matrix<bfloat16 const>, Accumulate, MatmulSum,
                     Matrix<float const>);
template void matmul(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, Matrix<bfloat16 const>, Accumulate,
                     MatmulSum, Matrix<bfloat16 const>);
template void matmul_sliced(Cpu const&, Matrix<float>, std::span<Product<float> const>, int, Matrix<float const>);
template void matmul_sliced(Cpu const&, Matrix<float>, std::span<Product<bfloat16> const>, int, Matrix<float const>);
template void matmul_sliced(Cpu const&, Matrix<bfloat16>, std::span<Product<bfloat16> const>, int,
                            Matrix<bfloat16 const>);

}  // namespace isotrain::kernels
