#include "kernels/matmul.h"

#include <type_traits>

#include "kernels/cpu/matmul_part.h"
#include "lib/base/error.h"

namespace isotrain::kernels {
namespace {

/// The same product with rows and columns exchanged, so that C's rows are contiguous if one of its dims is.
template <class T, class Out>
gemm::Product<T, Out> with_contiguous_rows(gemm::Product<T, Out> product) {
  if (product.c.col_stride == 1 || product.c.row_stride != 1) return product;
  return {product.c.transposed(), product.b.transposed(), product.a.transposed(),
          product.cuts,           product.add_to_c,       product.residual.transposed()};
}

}  // namespace

template <class T, class Out>
void matmul(Cpu const& at, Matrix<Out> c, Matrix<T const> a, Matrix<T const> b, Accumulate accumulate, MatmulSum sum,
            Matrix<Out const> residual) {
  expects(a.rows == c.rows && b.cols == c.cols && a.cols == b.rows, "the shapes of A, B and C fit");
  expects(sum.slices >= 1 && sum.leaf >= 0, "a sum has at least one slice and no negative leaf");
  expects(accumulate == Accumulate::no || (sum.slices == 1 && !residual.data),
          "a product that adds to C has neither slices nor a residual");
  expects(accumulate == Accumulate::no || std::is_same_v<Out, float>, "only an fp32 C is added to");
  expects(!residual.data || (residual.rows == c.rows && residual.cols == c.cols), "the residual has the shape of C");
  auto const product = with_contiguous_rows(
      gemm::Product<T, Out>{c, a, b, {a.cols, sum.slices, sum.leaf}, accumulate == Accumulate::yes, residual});
  if (product.c.empty()) return;
  gemm::TileShape const tile = gemm::tile_shape<T>(at.bf16_class());
  gemm::Grid const grid = gemm::choose_grid(at.threads(), tile, product.c.rows, product.c.cols, product.a.cols);
  struct {
    gemm::Product<T, Out> const& product;
    gemm::TileShape tile;
    gemm::Grid grid;
    Bf16Class bf16;
  } const job{product, tile, grid, at.bf16_class()};
  // One reference is all that is captured, so that std::function allocates nothing.
  at.parallel_for(grid.parts(), 1, [&job](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      int const row_part = static_cast<int>(part) / job.grid.cols;
      int const col_part = static_cast<int>(part) % job.grid.cols;
      gemm::multiply_part(job.product, gemm::cut(job.product.c.rows, job.grid.rows, row_part, job.tile.rows),
                          gemm::cut(job.product.c.cols, job.grid.cols, col_part, job.tile.cols), job.bf16);
    }
  });
}

template void matmul(Cpu const&, Matrix<float>, Matrix<float const>, Matrix<float const>, Accumulate, MatmulSum,
                     Matrix<float const>);
template void matmul(Cpu const&, Matrix<float>, Matrix<bfloat16 const>, Matrix<bfloat16 const>, Accumulate, MatmulSum,
                     Matrix<float const>);
template void matmul(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, Matrix<bfloat16 const>, Accumulate,
                     MatmulSum, Matrix<bfloat16 const>);

}  // namespace isotrain::kernels
