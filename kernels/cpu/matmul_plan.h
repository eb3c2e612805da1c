#pragma once

#include <cstdint>
#include <span>

#include "lib/base/matrix.h"

/// How a matrix product is cut: along K by its definition, along M and N by threads. Pure functions and values; knows
/// no instruction set. Letters as in kernels/matmul.h.
namespace isotrain::kernels::gemm {

/// Where the sum along K is cut by definition.
struct KCuts {
  std::int64_t length = 0;  // K
  int slices = 1;           // runs of ceil(K / slices), each a partial sum of its own
  std::int64_t leaf = 0;    // blocks and pairs restart every `leaf` steps of a run; 0: never
  /// Blocks and pairs restart at each of these, given relative to the first. Empty: no such cuts. Not with `leaf`.
  std::span<std::int64_t const> segments = {};

  /// Runs that are not empty.
  int num_runs() const;
  std::int64_t run_length() const { return (length + slices - 1) / slices; }
};

/// Consecutive steps of K without a cut inside. Packed panels pad it with zeros to a multiple of the class's block.
struct KPiece {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// What one call of a micro-kernel sums: a few pieces of one run.
struct KBlock {
  static constexpr int max_pieces = 128;

  std::int64_t steps = 0;  // with padding
  int run = 0;
  bool begins_run = false;
  bool ends_run = false;
  int num_pieces = 0;
  KPiece pieces[max_pieces];
};

/// Walks K in blocks of up to `max_steps` padded steps. A copy walks the same blocks again from where it was copied.
class KCursor {
 public:
  /// `pad`: a piece's length is rounded up to a multiple of it; divides 32. `max_steps`: a multiple of 32, at most
  /// pad * KBlock::max_pieces if pad > 1.
  KCursor(KCuts const& cuts, std::int64_t pad, std::int64_t max_steps);

  bool done() const { return at_ == cuts_.length; }
  std::int64_t position() const { return at_; }
  /// Requires !done().
  KBlock next();

 private:
  std::int64_t segment_end();

  KCuts cuts_;
  std::int64_t pad_;
  std::int64_t max_steps_;
  std::int64_t at_ = 0;
  std::int64_t run_begin_ = 0;
  std::int64_t run_end_ = 0;
  int run_ = -1;
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

/// One product, or a group of a grouped one: C = round([C +] A B [+ residual]).
template <class T, class Out>
struct Product {
  Matrix<Out> c;
  Matrix<T const> a;
  Matrix<T const> b;
  KCuts cuts;
  bool add_to_c = false;
  Matrix<Out const> residual = {};
};

}  // namespace isotrain::kernels::gemm
