#pragma once

#include <cstdint>
#include <span>

#include "kernels/matmul.h"
#include "lib/base/matrix.h"

/// How a matrix product is cut: along K by its definition, along M and N by threads. Pure functions and values; knows
/// no instruction set. Letters as in kernels/matmul.h.
namespace isotrain::kernels::gemm {

/// Where the sum along K is cut by definition.
struct KCuts {
  std::span<std::int64_t const> lengths;  // K of each product; blocks and pairs restart at each
  int per_run = 1;                        // consecutive products that are one sum, a leaf of the tree
  std::int64_t leaf = 0;                  // blocks and pairs restart every `leaf` steps of a product; 0: never
  /// Blocks and pairs restart at each of these, given relative to the first. Empty: no such cuts. Not with `leaf` or
  /// several products.
  std::span<std::int64_t const> segments = {};

  std::int64_t length() const;
  /// With empty ones.
  int num_runs() const { return static_cast<int>(lengths.size()) / per_run; }
  int num_runs_with_steps() const;
  std::int64_t run_length(int run) const;
};

/// Consecutive steps of a product without a cut inside. Packed panels pad it with zeros to a multiple of the class's
/// block. Not initialised, as most of a block's pieces are never used.
struct KPiece {
  std::size_t product;
  std::int64_t begin;
  std::int64_t count;
};

/// What one call of a micro-kernel sums: a few pieces of one run.
struct KBlock {
  static constexpr int max_pieces = 128;

  std::int64_t steps = 0;  // with padding
  /// Where the subtree that the run completes waits for its right sibling; the last run is above all others.
  int level = 0;
  unsigned merges =
      0;  // levels of the subtrees that the end of the run completes, a bit each: left operands, ascending
  bool begins_run = false;
  bool ends_run = false;
  int num_pieces = 0;
  KPiece pieces[max_pieces];
};

/// Walks K in blocks of up to `max_steps` padded steps, each of one run. A copy walks the same blocks again from where
/// it was copied.
class KCursor {
 public:
  /// `pad`: a piece's length is rounded up to a multiple of it; divides 32. `max_steps`: a multiple of 32, at most
  /// pad * KBlock::max_pieces if pad > 1.
  KCursor(KCuts const& cuts, std::int64_t pad, std::int64_t max_steps);

  bool done() const { return at_ == length_; }
  std::int64_t position() const { return at_; }
  /// Requires !done().
  KBlock next();

 private:
  /// The next run with steps from `run` on, or -1.
  int run_with_steps(int run) const;
  void begin_run();
  /// Where the uncut steps from at_in_product_ on end, in the product.
  std::int64_t segment_end();

  KCuts cuts_;
  std::int64_t pad_;
  std::int64_t max_steps_;
  std::int64_t length_;
  std::int64_t at_ = 0;
  std::int64_t run_end_ = 0;
  int run_ = -1;
  int level_ = 0;
  unsigned merges_ = 0;
  unsigned waiting_ = 0;  // levels of the subtrees that wait, a bit each
  std::size_t product_ = 0;
  std::int64_t at_in_product_ = 0;
  std::size_t segment_ = 0;
};

/// A half-open range of rows or columns.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

/// Part `index` of `parts` of [0, extent), cut at multiples of `unit`.
Range cut(std::int64_t extent, int parts, int index, std::int64_t unit);

/// The register tile of a micro-kernel.
struct TileShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// How many parts C's rows and columns are cut into, one part a thread.
struct Grid {
  int rows = 1;
  int cols = 1;

  int parts() const { return rows * cols; }
};

/// The grid of at most `threads` parts that is done first: multiplications of the largest part, and packing of its
/// share of A and B. With `groups` > 1, m rows in all are spread over that many matrices B. Small products get one
/// part.
Grid choose_grid(int threads, TileShape tile, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t groups = 1);

/// One sum of products, or a group of a grouped one: C = round([C +] sum of A B [+ residual]).
template <class T, class Out>
struct Sum {
  Matrix<Out> c;
  std::span<Product<T> const> products;
  KCuts cuts;
  bool add_to_c = false;
  Matrix<Out const> residual = {};
};

}  // namespace isotrain::kernels::gemm
