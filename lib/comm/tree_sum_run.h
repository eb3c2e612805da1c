#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lib/comm/tree_sum.h"

namespace isotrain {

/// A TreeReduction::reduce_scatter that is under way beside other work:
///
///   TreeReductionRun run(reduction, at, partials, chunk, workspace);
///   while (there is other work) { do some of it;  run.progress(); }
///   run.finish();
///
/// All ranks of the group start their runs in the same order among its collectives; any number may be under way, and
/// each rank goes on with its own when it likes. Until finish() returns, partials are not to be written.
class TreeReductionRun {
 public:
  /// Collective. Posts what other ranks own. `chunk` and `workspace` are used from the first progress() or finish() on.
  TreeReductionRun(TreeReduction const& reduction, Cpu const& at, std::vector<std::span<float>> partials,
                   std::span<float> chunk, std::span<float> workspace);
  TreeReductionRun(TreeReductionRun const&) = delete;
  TreeReductionRun& operator=(TreeReductionRun const&) = delete;

  /// Adds up what has come; never blocks. Whether the chunk is complete and the workspace free.
  bool progress();
  /// Returns when that is so and all is sent.
  void finish();

 private:
  std::vector<std::span<float>> operands_of(std::int64_t piece) const;
  void post_sends();
  void post_receives(std::int64_t piece);
  /// Of the piece that has come.
  void add_up();

  TreeReduction const& reduction_;
  Cpu at_;
  std::vector<std::span<float>> partials_;
  std::span<float> chunk_;
  std::span<float> workspace_;
  std::uint64_t number_;     // of the collective
  std::int64_t num_pieces_;  // of the chunk
  std::int64_t piece_ = -1;  // that is waited for; -1: nothing is yet
  Messages sends_;
  std::array<Messages, 2> receives_;  // of even and of odd pieces
};

/// Runs that share one workspace: all send at once, and the chunks are completed one after the other.
class TreeReductionQueue {
 public:
  /// `workspace`: as the largest reduction needs it.
  explicit TreeReductionQueue(std::span<float> workspace) : workspace_(workspace) {}

  /// Collective, as the constructor of a run.
  void start(TreeReduction const& reduction, Cpu const& at, std::vector<std::span<float>> partials,
             std::span<float> chunk);
  /// Adds up what has come; never blocks. Whether all chunks are complete.
  bool progress();
  /// Returns when that is so and all is sent.
  void finish();

 private:
  std::span<float> workspace_;
  std::deque<TreeReductionRun> runs_;
  std::size_t first_ = 0;  // that is not complete
};

}  // namespace isotrain
