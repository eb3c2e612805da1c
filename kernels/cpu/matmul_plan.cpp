#include "kernels/cpu/matmul_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace isotrain::kernels::gemm {
namespace {

std::int64_t round_up(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t KCuts::length() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

int KCuts::num_runs_with_steps() const {
  int count = 0;
  for (int run = 0; run < num_runs(); ++run) count += run_length(run) > 0;
  return count;
}

std::int64_t KCuts::run_length(int run) const {
  auto const first = lengths.begin() + std::ptrdiff_t{run} * per_run;
  return std::accumulate(first, first + per_run, std::int64_t{0});
}

KCursor::KCursor(KCuts const& cuts, std::int64_t pad, std::int64_t max_steps)
    : cuts_(cuts), pad_(pad), max_steps_(max_steps), length_(cuts.length()) {
  if (cuts.leaf > 0 || !cuts.segments.empty()) return;
  // Blocks of a run of even length, so that none is left over with a few steps.
  std::int64_t padded = 0, of_run = 0;
  for (std::size_t i = 0; i < cuts.lengths.size(); ++i) {
    of_run = round_up(cuts.lengths[i], pad) + (i % static_cast<std::size_t>(cuts.per_run) == 0 ? 0 : of_run);
    padded = std::max(padded, round_up(of_run, 32));
  }
  std::int64_t const blocks = std::max<std::int64_t>((padded + max_steps - 1) / max_steps, 1);
  max_steps_ = round_up((padded + blocks - 1) / blocks, 32);
}

int KCursor::run_with_steps(int run) const {
  while (run < cuts_.num_runs() && cuts_.run_length(run) == 0) ++run;
  return run < cuts_.num_runs() ? run : -1;
}

void KCursor::begin_run() {
  run_ = run_with_steps(run_ + 1);
  run_end_ = at_ + cuts_.run_length(run_);
  product_ = static_cast<std::size_t>(run_) * static_cast<std::size_t>(cuts_.per_run);
  at_in_product_ = 0;
  // What the run completes waits where its place and the next one's part; what waits below is complete by then.
  int const next = run_with_steps(run_ + 1);
  auto const place = static_cast<unsigned>(run_);
  level_ = next < 0 ? std::bit_width(place) : std::bit_width(place ^ static_cast<unsigned>(next)) - 1;
  merges_ = waiting_ & ((1U << level_) - 1);
  waiting_ = (waiting_ ^ merges_) | 1U << level_;
}

std::int64_t KCursor::segment_end() {
  std::int64_t const end = cuts_.lengths[product_];
  if (cuts_.leaf > 0) return std::min(end, (at_in_product_ / cuts_.leaf + 1) * cuts_.leaf);
  if (cuts_.segments.empty()) return end;
  while (cuts_.segments[segment_ + 1] - cuts_.segments[0] <= at_) ++segment_;
  return std::min(end, cuts_.segments[segment_ + 1] - cuts_.segments[0]);
}

KBlock KCursor::next() {
  KBlock block;
  if (at_ == run_end_) {
    begin_run();
    block.begins_run = true;
  }
  block.level = level_;
  block.merges = merges_;
  while (at_ < run_end_ && block.steps < max_steps_ && block.num_pieces < KBlock::max_pieces) {
    if (at_in_product_ == cuts_.lengths[product_]) {
      ++product_;
      at_in_product_ = 0;
      continue;
    }
    std::int64_t const count = std::min(segment_end() - at_in_product_, max_steps_ - block.steps);
    block.pieces[block.num_pieces++] = {product_, at_in_product_, count};
    block.steps += round_up(count, pad_);
    at_ += count;
    at_in_product_ += count;
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
