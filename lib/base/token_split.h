#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/base/error.h"
#include "lib/base/tree.h"

namespace isotrain {

/// How the positions of every sample are split over the ranks of a tensor-parallel group between the blocks. The
/// sequence is cut into `slices` runs of ceil(sequence / slices) positions, the last ones shorter or empty; rank r has
/// the runs [r * slices / ranks, (r + 1) * slices / ranks). The runs do not depend on the number of ranks, so sums over
/// tokens that go run by run, then Tree(slices), have the same bits for any number.
/// Source: sequence parallelism, Korthikanti et al., arXiv:2205.05198, section 4.2.2.
class TokenSplit {
 public:
  /// `ranks` divides `slices`; 0 <= rank < ranks.
  TokenSplit(std::int64_t sequence, int slices, int ranks, int rank)
      : sequence_(sequence), run_(0), slices_(slices), ranks_(ranks), rank_(rank) {
    expects(sequence >= 1 && slices >= 1, "a position and a slice");
    expects(ranks >= 1 && slices % ranks == 0, "a number of ranks that divides the slices");
    expects(0 <= rank && rank < ranks, "a rank of the group");
    run_ = (sequence + slices - 1) / slices;
  }

  std::int64_t sequence() const { return sequence_; }
  int slices() const { return slices_; }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  /// The slices of a rank; this one's.
  IndexRange slices_of(int rank) const {
    expects(0 <= rank && rank < ranks_, "a rank of the group");
    return {std::int64_t{rank} * num_slices(), (std::int64_t{rank} + 1) * num_slices()};
  }
  int num_slices() const { return slices_ / ranks_; }

  /// The positions of a rank; this one's; how many of each sample this one has.
  IndexRange positions(int rank) const {
    IndexRange const slices = slices_of(rank);
    return {start(slices.begin), start(slices.end)};
  }
  IndexRange positions() const { return positions(rank_); }
  std::int64_t rows() const { return positions().size(); }

  /// The positions of own slice `index` (0 to num_slices() - 1), counted from this rank's first position.
  IndexRange slice(int index) const {
    expects(0 <= index && index < num_slices(), "a slice of this rank");
    std::int64_t const first = positions().begin;
    std::int64_t const number = slices_of(rank_).begin + index;
    return {start(number) - first, start(number + 1) - first};
  }

 private:
  std::int64_t start(std::int64_t slice) const { return std::min(sequence_, slice * run_); }

  std::int64_t sequence_;
  std::int64_t run_;  // positions of a slice that is not cut off
  int slices_;
  int ranks_;
  int rank_;
};

}  // namespace isotrain
