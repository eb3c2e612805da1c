#include "lib/comm/tree_sum.h"

#include <algorithm>

#include "kernels/reduce.h"
#include "lib/comm/tree_sum_run.h"

namespace isotrain {

TreeReduction::TreeReduction(Communicator const& comm, std::int64_t num_lanes, std::vector<IndexRange> const& lanes,
                             std::vector<std::int64_t> offsets, std::int64_t piece)
    : comm_(&comm), rank_(comm.rank()), offsets_(std::move(offsets)), piece_(piece), first_partial_{0} {
  auto const size = static_cast<std::size_t>(comm.size());
  expects(lanes.size() == size && offsets_.size() == size + 1, "the lanes and the chunk of each rank");
  expects(offsets_.front() == 0 && std::is_sorted(offsets_.begin(), offsets_.end()), "ascending offsets from 0");
  expects(piece_ >= 1, "a piece of at least one element");
  for (std::size_t r = 0; r < size; ++r) counts_.push_back(offsets_[r + 1] - offsets_[r]);

  TreeCounter counter(num_lanes);
  std::int64_t next_lane = 0;
  for (IndexRange range : lanes) {
    expects(range.begin == next_lane && range.end >= range.begin, "lanes without gaps");
    next_lane = range.end;
    std::vector<TreeNode> const nodes = subtrees(range, num_lanes);
    for (TreeNode node : nodes) {
      std::vector<TreeAdd> const due = counter.push(node);
      adds_.insert(adds_.end(), due.begin(), due.end());
    }
    first_partial_.push_back(first_partial_.back() + static_cast<std::int64_t>(nodes.size()));
  }
  expects(next_lane == num_lanes, "all lanes to be somewhere");
}

std::int64_t TreeReduction::workspace_size() const {
  return 2 * num_remote() * std::min(piece_, count());
}

void TreeReduction::reduce_scatter(Cpu const& at, std::span<std::span<float> const> partials, std::span<float> chunk,
                                   std::span<float> workspace) const {
  TreeReductionRun(*this, at, {partials.begin(), partials.end()}, chunk, workspace).finish();
}

void TreeReduction::add_piece(Cpu const& at, std::span<std::span<float> const> operands, std::span<float> sum) const {
  for (std::size_t i = 0; i + 1 < adds_.size(); ++i) {
    kernels::add(at, operands[static_cast<std::size_t>(adds_[i].left)],
                 operands[static_cast<std::size_t>(adds_[i].right)]);
  }
  if (adds_.empty()) {
    if (operands[0].data() != sum.data()) std::copy(operands[0].begin(), operands[0].end(), sum.begin());
  } else {
    kernels::add<float>(at, sum, operands[static_cast<std::size_t>(adds_.back().left)],
                        operands[static_cast<std::size_t>(adds_.back().right)]);
  }
}

}  // namespace isotrain
