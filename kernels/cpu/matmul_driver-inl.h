// The loops around a micro-kernel: packing, blocking for the caches, partial sums of slices, epilogue. Included once
// per Highway target.
#if defined(ISOTRAIN_KERNELS_MATMUL_DRIVER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOTRAIN_KERNELS_MATMUL_DRIVER_INL
#undef ISOTRAIN_KERNELS_MATMUL_DRIVER_INL
#else
#define ISOTRAIN_KERNELS_MATMUL_DRIVER_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/matmul_engine-inl.h"
#include "kernels/cpu/matmul_plan.h"
#include "kernels/cpu/matmul_workspace.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

inline std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

/// One thread's part of a product.
template <class Engine, class T, class Out>
class PartOfProduct {
 public:
  PartOfProduct(gemm::Sum<T, Out> const& sum, gemm::Range rows, gemm::Range cols)
      : products_(sum.products),
        first_row_(rows.begin),
        first_col_(cols.begin),
        c_(sum.c.slice_rows(rows.begin, rows.size()).slice_cols(cols.begin, cols.size())),
        residual_(sum.residual),
        cuts_(sum.cuts),
        add_to_c_(sum.add_to_c) {
    if (residual_.data) {
      residual_ = residual_.slice_rows(rows.begin, rows.size()).slice_cols(cols.begin, cols.size());
    }
    if (Engine::pad == 1) cuts_.leaf = 0, cuts_.segments = {};
    one_run_ = cuts_.num_runs_with_steps() == 1;
  }

  void operator()() {
    if (c_.empty()) return;
    if (cuts_.length() == 0) return fill();
    choose_blocks();
    typename Engine::Session const session;
    for (std::int64_t col = 0; col < c_.cols; col += block_cols_) {
      std::int64_t const cols = std::min(block_cols_, c_.cols - col);
      gemm::KCursor k(cuts_, Engine::pad, Engine::max_steps);
      for (bool add = add_to_c_; !k.done(); add = true) {
        Pass pass{k, k, 0, add};
        pass.steps = advance(k, steps_);
        pass.end = k;
        auto const columns_of = [&](Product<T> const& product) {
          return product.b.slice_cols(first_col_ + col, cols).transposed();
        };
        pack(panels_b_, Engine::cols, columns_of, pass, &Engine::template pack_b<T>);
        for (std::int64_t row = 0; row < c_.rows; row += block_rows_) {
          multiply_block(pass, row, std::min(block_rows_, c_.rows - row), col, cols);
        }
      }
    }
  }

 private:
  using Element = typename Engine::Element;

  /// A range of K that is packed at once.
  struct Pass {
    gemm::KCursor begin;
    gemm::KCursor end;
    std::int64_t steps = 0;  // padded
    bool add = false;        // to what C holds
    bool starts = true;      // the sums that are kept for `finishes`
    bool finishes = true;
  };

  /// Sizes of the packed blocks: A's and partial sums stay in the second-level cache; B's too if A has one block only.
  void choose_blocks() {
    constexpr std::int64_t cache = 768 << 10;
    constexpr std::int64_t far_cache = 8 << 20;
    constexpr std::int64_t steps_per_pass = 2048;
    padded_ = 0;
    for (gemm::KCursor k(cuts_, Engine::pad, Engine::max_steps); !k.done();) padded_ += k.next().steps;
    // Sums that live in C itself may be left and taken up again.
    bool const resumable = std::is_same_v<Out, float> && one_run_ && !residual_.data;
    steps_a_ = std::min(padded_, steps_per_pass);
    steps_ = resumable ? steps_a_ : padded_;
    keeps_a_ = false;
    block_rows_ = blocks(c_.rows, steps_a_, cache, Engine::rows);
    bool const skinny = block_rows_ >= c_.rows;
    block_cols_ = blocks(c_.cols, steps_, skinny ? cache : far_cache, Engine::cols);
    keeps_a_ = skinny && steps_a_ == padded_;
    auto const panels = [](gemm::Purpose purpose, std::int64_t vectors, std::int64_t unit, std::int64_t steps) {
      std::int64_t const elements = ceil_div(vectors, unit) * size_of_panel(unit, steps);
      return static_cast<Element*>(gemm::workspace(purpose, static_cast<std::size_t>(elements) * sizeof(Element)));
    };
    panels_a_ = panels(gemm::Purpose::panels_a, block_rows_, Engine::rows, steps_a_);
    panels_b_ = panels(gemm::Purpose::panels_b, block_cols_, Engine::cols, steps_);
    std::int64_t const levels = std::bit_width(static_cast<unsigned>(cuts_.num_runs() - 1)) + 1;
    sums_stride_ = ceil_div(block_rows_, Engine::rows) * tile_size;
    level_stride_ = sums_stride_ * (steps_a_ == steps_ ? 1 : ceil_div(block_cols_, Engine::cols));
    sums_ = static_cast<float*>(
        gemm::workspace(gemm::Purpose::partial_sums, static_cast<std::size_t>(levels * level_stride_) * sizeof(float)));
  }

  /// Even blocks of whole tiles that fit `bytes`.
  static std::int64_t blocks(std::int64_t vectors, std::int64_t steps, std::int64_t bytes, std::int64_t unit) {
    std::int64_t const fit =
        std::max(bytes / (steps * static_cast<std::int64_t>(sizeof(Element))) / unit, std::int64_t{1});
    std::int64_t const tiles = ceil_div(vectors, unit);
    return ceil_div(tiles, ceil_div(tiles, fit)) * unit;
  }

  /// Moves `k` behind the blocks that fit `limit` steps, or to the end if all do; returns their steps.
  std::int64_t advance(gemm::KCursor& k, std::int64_t limit) const {
    std::int64_t steps = 0;
    while (!k.done() && (limit == padded_ || steps + Engine::max_steps <= limit)) steps += k.next().steps;
    return steps;
  }

  /// A block of rows of A with a block of columns of B that is packed for all of `pass`: A in parts of it.
  void multiply_block(Pass const& pass, std::int64_t row, std::int64_t rows, std::int64_t col,
                      std::int64_t cols) const {
    gemm::KCursor k = pass.begin;
    for (std::int64_t done = 0; done < pass.steps;) {
      Pass part{k, k, 0, pass.add && done == 0, done == 0, false};
      part.steps = steps_a_ == steps_ ? pass.steps : advance(k, steps_a_);
      if (steps_a_ == steps_) k = pass.end;
      part.end = k;
      part.finishes = k.position() == pass.end.position();
      if (col == 0 || !keeps_a_) {
        auto const rows_of = [&](Product<T> const& product) { return product.a.slice_rows(first_row_ + row, rows); };
        pack(panels_a_, Engine::rows, rows_of, part, &Engine::template pack_a<T>);
      }
      for (std::int64_t strip = 0; strip < cols; strip += Engine::cols) {
        std::int64_t const index = strip / Engine::cols;
        multiply_strip(part, row, rows, col + strip,
                       panels_b_ + index * size_of_panel(Engine::cols, pass.steps) + done * Engine::cols,
                       sums_ + (steps_a_ == steps_ ? 0 : index * sums_stride_));
      }
      done += part.steps;
    }
  }

  /// Packs vectors along K (rows of vectors_of(product)) of a pass: panel after panel, each with all its steps.
  template <class VectorsOf, class Pack>
  void pack(Element* to, std::int64_t width, VectorsOf const& vectors_of, Pass const& pass, Pack pack_panel) const {
    std::int64_t const panel_size = size_of_panel(width, pass.steps);
    for (gemm::KCursor k = pass.begin; k.position() != pass.end.position();) {
      gemm::KBlock const block = k.next();
      for (int piece = 0; piece < block.num_pieces; ++piece) {
        gemm::KPiece rest = block.pieces[piece];
        Matrix<T const> const m = vectors_of(products_[rest.product]);
        // Of vectors that lie side by side, a few steps of all: whole lines and pages are used up while they are near.
        std::int64_t const max_count = m.col_stride == 1 ? Engine::max_steps : 32;
        while (rest.count > 0) {
          std::int64_t const count = std::min(rest.count, max_count);
          std::int64_t const padded = ceil_div(count, Engine::pad) * Engine::pad;
          for (std::int64_t i = 0; i < m.rows; i += width) {
            Strip<T> const strip{m.data + i * m.row_stride + rest.begin * m.col_stride, std::min(width, m.rows - i),
                                 m.rows - i, m.row_stride, m.col_stride};
            pack_panel(to + i / width * panel_size, strip, count, padded);
          }
          to += padded * width;
          rest.begin += count;
          rest.count -= count;
        }
      }
    }
  }

  /// With room for what packing writes beyond the panel's end.
  static std::int64_t size_of_panel(std::int64_t width, std::int64_t steps) { return width * steps + Engine::slack; }

  /// All rows of a block of A with one panel of B.
  void multiply_strip(Pass const& pass, std::int64_t row, std::int64_t rows, std::int64_t col, Element const* panel_b,
                      float* sums) const {
    std::int64_t const cols = std::min(Engine::cols, c_.cols - col);
    bool const may_be_in_place =
        std::is_same_v<Out, float> && one_run_ && !residual_.data && c_.col_stride == 1 && cols == Engine::cols;
    std::int64_t steps = 0;
    for (gemm::KCursor k = pass.begin; k.position() != pass.end.position();) {
      gemm::KBlock const block = k.next();
      bool const last = pass.finishes && k.position() == pass.end.position();
      bool const first = block.begins_run || (pass.starts && steps == 0);
      bool const one_block = pass.starts && steps == 0 && last;
      std::int64_t const next_b_bytes = block.steps * Engine::cols * static_cast<std::int64_t>(sizeof(Element));
      std::int64_t const lines = ceil_div(ceil_div(next_b_bytes, 64), ceil_div(rows, Engine::rows));
      auto const* next_b = reinterpret_cast<char const*>(panel_b) + next_b_bytes;
      // A tile is completed after the next one is multiplied: by then its sums have left the processor's store buffer.
      std::int64_t waiting = -1;
      for (std::int64_t i = 0; i < rows; i += Engine::rows) {
        std::int64_t const height = std::min(Engine::rows, rows - i);
        bool const in_place = may_be_in_place && (height == Engine::rows || !Engine::needs_whole_tiles);
        float* const own = sums_of(sums, i, block.level, one_block);
        TileInOut tile{first ? nullptr : own, Engine::cols, own, Engine::cols};
        if constexpr (std::is_same_v<Out, float>) {
          Matrix<Out> const c = c_.slice_rows(row + i, height).slice_cols(col, cols);
          if (first && pass.add) {
            if (!in_place) load_tile(c, own, Engine::cols);
            tile.in = in_place ? c.data : own;
            tile.in_stride = in_place ? c.row_stride : Engine::cols;
          }
          if (last && in_place) tile.out = c.data, tile.out_stride = c.row_stride;
        }
        Next const next{last || (first && pass.add) ? next_of_c(row, rows, i, col) : Ahead(),
                        Ahead(next_b, 128, 128, lines)};
        next_b += lines * 64;
        Engine::multiply(height, cols,
                         panels_a_ + i / Engine::rows * size_of_panel(Engine::rows, pass.steps) + steps * Engine::rows,
                         panel_b, block.steps, tile, next);
        if (!in_place && (block.ends_run || last)) {
          if (waiting >= 0)
            complete(sums, sums_of(sums, waiting, block.level, one_block), waiting, row, rows, col, cols, block, last);
          waiting = i;
        }
      }
      if (waiting >= 0)
        complete(sums, sums_of(sums, waiting, block.level, one_block), waiting, row, rows, col, cols, block, last);
      steps += block.steps;
      panel_b += block.steps * Engine::cols;
    }
  }

  /// The tile of C after the one at row + i: below it, or on top of the next strip.
  Ahead next_of_c(std::int64_t row, std::int64_t rows, std::int64_t i, std::int64_t col) const {
    bool const below = i + Engine::rows < rows;
    Out const* const tile = below ? &c_(row + i + Engine::rows, col) : &c_(row, col + Engine::cols);
    std::int64_t const stride = c_.row_stride * static_cast<std::int64_t>(sizeof(Out));
    constexpr std::int64_t row_bytes = Engine::cols * sizeof(Out);
    // Rows of one line go two by two.
    return row_bytes > 64 ? Ahead(tile, stride, row_bytes, 2 * Engine::rows)
                          : Ahead(tile, 2 * stride, stride + 1, Engine::rows);
  }

  /// The sums of a run for the tile at row i of the block of A. A run is summed where its subtree will wait. If there
  /// is one block only, two tiles take turns and stay in the first-level cache.
  float* sums_of(float* sums, std::int64_t i, int level, bool one_block) const {
    std::int64_t const index = i / Engine::rows;
    if (one_block) return sums + index % 2 * tile_size;
    return sums + index * tile_size + level * level_stride_;
  }

  /// After the last block of a run or of a pass: adds what the run completes in the tree, and writes C if all is
  /// summed.
  void complete(float* sums, float* own, std::int64_t i, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols, gemm::KBlock const& block, bool last) const {
    if (block.ends_run) {
      for (unsigned merges = block.merges; merges != 0; merges &= merges - 1) {
        add_tile(sums + i / Engine::rows * tile_size + std::countr_zero(merges) * level_stride_, own, tile_size);
      }
    }
    if (!last) return;
    auto const of_tile = [&](auto m) {
      return m.slice_rows(row + i, std::min(Engine::rows, rows - i)).slice_cols(col, cols);
    };
    Engine::finish(own, of_tile(c_), residual_.data ? of_tile(residual_) : residual_);
  }

  /// K = 0.
  void fill() const {
    if (add_to_c_) return;
    for (std::int64_t r = 0; r < c_.rows; ++r) {
      for (std::int64_t j = 0; j < c_.cols; ++j) {
        c_(r, j) = from_float<Out>(residual_.data ? 0.0F + to_float(residual_(r, j)) : 0.0F);
      }
    }
  }

  static constexpr std::int64_t tile_size = Engine::rows * Engine::cols;

  std::span<Product<T> const> products_;
  std::int64_t first_row_;  // of the part, in the whole product
  std::int64_t first_col_;
  Matrix<Out> c_;
  Matrix<Out const> residual_;
  gemm::KCuts cuts_;
  bool add_to_c_;
  bool one_run_ = false;         // with steps
  std::int64_t padded_ = 0;      // steps of all of K
  std::int64_t steps_ = 0;       // of B packed at a time
  std::int64_t steps_a_ = 0;     // of A packed at a time
  std::int64_t block_rows_ = 0;  // of A packed at a time
  std::int64_t block_cols_ = 0;  // of B packed at a time
  bool keeps_a_ = false;         // A is packed once for all blocks of B
  Element* panels_a_ = nullptr;
  Element* panels_b_ = nullptr;
  float* sums_ = nullptr;  // [level][strip, if A is packed in parts][row tile][tile]
  std::int64_t sums_stride_ = 0;
  std::int64_t level_stride_ = 0;
};

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
