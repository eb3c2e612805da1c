#include "kernels/cpu/matmul_plan.h"

#include <algorithm>

namespace isotrain::kernels::gemm {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

}  // namespace

int KCuts::num_runs() const {
  return length == 0 ? 0 : static_cast<int>((length + run_length() - 1) / run_length());
}

KCursor::KCursor(KCuts const& cuts, std::int64_t pad, std::int64_t max_steps)
    : cuts_(cuts), pad_(pad), max_steps_(max_steps) {
  // Blocks of a run of even length, so that none is left over with a few steps.
  std::int64_t const padded = round_up(cuts.run_length(), 32);
  std::int64_t const blocks = std::max<std::int64_t>((padded + max_steps - 1) / max_steps, 1);
  if (cuts.leaf == 0 && cuts.segments.empty()) max_steps_ = round_up((padded + blocks - 1) / blocks, 32);
}

std::int64_t KCursor::segment_end() {
  if (cuts_.leaf > 0) return std::min(run_end_, run_begin_ + ((at_ - run_begin_) / cuts_.leaf + 1) * cuts_.leaf);
  if (cuts_.segments.empty()) return run_end_;
  while (cuts_.segments[segment_ + 1] - cuts_.segments[0] <= at_) ++segment_;
  return std::min(run_end_, cuts_.segments[segment_ + 1] - cuts_.segments[0]);
}

KBlock KCursor::next() {
  KBlock block;
  if (at_ == run_end_) {
    ++run_;
    run_begin_ = at_;
    run_end_ = std::min(cuts_.length, at_ + cuts_.run_length());
  }
  block.run = run_;
  block.begins_run = at_ == run_begin_;
  while (at_ < run_end_ && block.steps < max_steps_) {
    std::int64_t const count = std::min(segment_end() - at_, max_steps_ - block.steps);
    block.pieces[block.num_pieces++] = {at_, count};
    block.steps += round_up(count, pad_);
    at_ += count;
  }
  block.ends_run = at_ == run_end_;
  return block;
}

Range cut(std::int64_t extent, int parts, int index, std::int64_t unit) {
  std::int64_t const units = (extent + unit - 1) / unit;
  return {std::min(extent, units * index / parts * unit), std::min(extent, units * (index + 1) / parts * unit)};
}

Grid choose_grid(int threads, TileShape tile, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t groups) {
  // Waking a thread costs about as much as this many multiplications.
  constexpr double multiplications_per_thread = 2.5e5;
  // Packing an element costs about as much as this many multiplications.
  constexpr double packing = 10;
  double const work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  auto const parts = static_cast<int>(std::min<double>(threads, 1 + work / multiplications_per_thread));
  Grid best;
  double best_cost = 0;
  for (int rows = 1; rows <= parts; ++rows) {
    Grid const grid{rows, parts / rows};
    auto const part_rows = static_cast<double>(round_up((m + rows - 1) / rows, tile.rows));
    auto const part_cols = static_cast<double>(round_up((n + grid.cols - 1) / grid.cols, tile.cols));
    double const matrices = groups == 1 ? 1.0 : static_cast<double>(groups) / rows + 1;
    double const cost = part_rows * part_cols + packing * (part_rows + part_cols * matrices);
    if (rows == 1 || cost < best_cost) {
      best = grid;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace isotrain::kernels::gemm
