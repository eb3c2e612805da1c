#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/tree.h"
#include "lib/comm/communicator.h"
#include "lib/device/cpu.h"

namespace isotrain {

/// The canonical sum over lanes across ranks: every rank ends with one chunk of the sum over all lanes, added in the
/// order of Tree(num_lanes), so the bits do not depend on the number of ranks nor on who has which lanes or which
/// chunk.
///
/// Each rank sends the part of its partial sums that another rank owns straight to that rank, in pieces, and adds
/// up what arrives. With one partial a rank that is the traffic of a ring. While one piece is added up, the next
/// travels. TreeReductionRun (lib/comm/tree_sum_run.h) does it beside other work.
class TreeReduction {
 public:
  /// `lanes` of each rank: ascending, without gaps, together [0, num_lanes); a rank may have none.
  /// `offsets`: rank r owns elements [offsets[r], offsets[r + 1]) of the sum; size() + 1 entries, ascending from 0.
  /// `piece`: elements in a message. All arguments are the same on all ranks.
  TreeReduction(Communicator const& comm, std::int64_t num_lanes, std::vector<IndexRange> const& lanes,
                std::vector<std::int64_t> offsets, std::int64_t piece = default_piece);

  /// Elements of the workspace that reduce_scatter needs on this rank: two pieces of every other rank's partials.
  std::int64_t workspace_size() const;

  /// Collective. `partials`: this rank's sums over subtrees(its lanes), ascending, each of offsets.back() elements;
  /// what they hold in this rank's chunk is garbage afterwards. `chunk` (this rank's part of the sum) may be that part
  /// of a partial, not overlap it otherwise.
  void reduce_scatter(Cpu const& at, std::span<std::span<float> const> partials, std::span<float> chunk,
                      std::span<float> workspace) const;

  /// Collective. Every rank brings its chunk at its place in `whole` and gets all others'.
  template <Plain T>
  void all_gather(std::span<T> whole) const {
    std::span<T const> const mine =
        whole.subspan(static_cast<std::size_t>(begin(rank_)), static_cast<std::size_t>(end(rank_) - begin(rank_)));
    comm_->all_gather(mine, whole, std::span<std::int64_t const>(counts_));
  }

  static constexpr std::int64_t default_piece = std::int64_t{1} << 16;

 private:
  std::int64_t begin(int rank) const { return offsets_[static_cast<std::size_t>(rank)]; }
  std::int64_t end(int rank) const { return offsets_[static_cast<std::size_t>(rank) + 1]; }
  std::int64_t count() const { return counts_[static_cast<std::size_t>(rank_)]; }  // elements of this rank's chunk
  std::int64_t first_own() const { return first_partial_[static_cast<std::size_t>(rank_)]; }
  std::int64_t end_own() const { return first_partial_[static_cast<std::size_t>(rank_) + 1]; }
  std::int64_t num_remote() const { return first_partial_.back() - (end_own() - first_own()); }
  void add_piece(Cpu const& at, std::span<std::span<float> const> operands, std::span<float> sum) const;

  friend class TreeReductionRun;

  Communicator const* comm_;
  int rank_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> counts_;  // elements of each rank's chunk
  std::int64_t piece_;
  std::vector<std::int64_t> first_partial_;  // of each rank, among all partials; size() + 1 entries
  std::vector<TreeAdd> adds_;                // of all partials, to one sum
};

}  // namespace isotrain
