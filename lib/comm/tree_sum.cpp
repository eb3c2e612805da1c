#include "lib/comm/tree_sum.h"

#include <algorithm>

#include "kernels/reduce.h"

namespace isotrain {
namespace {

/// Piece `number` of the elements [begin, end); empty beyond the last.
IndexRange piece_of(std::int64_t begin, std::int64_t end, std::int64_t piece, std::int64_t number) {
  std::int64_t const start = std::min(end, begin + number * piece);
  return {start, std::min(end, start + piece)};
}

std::span<float> part(std::span<float> whole, IndexRange range) {
  return whole.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

}  // namespace

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
  auto const r = static_cast<std::size_t>(rank_);
  std::int64_t const own = first_partial_[r + 1] - first_partial_[r];
  return 2 * (first_partial_.back() - own) * std::min(piece_, counts_[r]);
}

void TreeReduction::reduce_scatter(Cpu const& at, std::span<std::span<float> const> partials, std::span<float> chunk,
                                   std::span<float> workspace) const {
  auto const r = static_cast<std::size_t>(rank_);
  std::int64_t const first_own = first_partial_[r], end_own = first_partial_[r + 1];
  expects(static_cast<std::int64_t>(partials.size()) == end_own - first_own, "one partial per subtree");
  for (auto const& partial : partials) {
    expects(static_cast<std::int64_t>(partial.size()) == offsets_.back(), "partials of full length");
  }
  expects(static_cast<std::int64_t>(chunk.size()) == counts_[r], "a chunk of this rank's length");
  expects(static_cast<std::int64_t>(workspace.size()) >= workspace_size(), "a workspace of workspace_size()");

  auto const noted =
      comm_->begin(Operation::tree_sum, element_of<float>(), static_cast<std::uint64_t>(offsets_.back()));
  std::int64_t const slot = std::min(piece_, counts_[r]);
  std::int64_t const num_remote = first_partial_.back() - (end_own - first_own);
  auto const operands_of = [&](std::int64_t number) {
    IndexRange const range = piece_of(begin(rank_), end(rank_), piece_, number);
    std::vector<std::span<float>> operands;
    std::int64_t used = number % 2 * num_remote * slot;
    for (std::int64_t p = 0; p < first_partial_.back(); ++p) {
      if (p >= first_own && p < end_own) {
        operands.push_back(part(partials[static_cast<std::size_t>(p - first_own)], range));
      } else {
        operands.push_back(part(workspace, {used, used + range.size()}));
        used += slot;
      }
    }
    return operands;
  };
  auto const post = [&](Messages& messages, std::int64_t number, std::vector<std::span<float>> const& operands) {
    for (int distance = 1; distance < comm_->size(); ++distance) {
      int const from = (rank_ + comm_->size() - distance) % comm_->size();
      auto const f = static_cast<std::size_t>(from);
      for (std::int64_t p = first_partial_[f]; p < first_partial_[f + 1]; ++p) {
        messages.receive(operands[static_cast<std::size_t>(p)], from);
      }
      int const to = (rank_ + distance) % comm_->size();
      IndexRange const range = piece_of(begin(to), end(to), piece_, number);
      for (auto const& partial : partials) messages.send(part(partial, range), to);
    }
  };

  std::int64_t const longest = *std::max_element(counts_.begin(), counts_.end());
  std::int64_t const num_pieces = (longest + piece_ - 1) / piece_;
  Messages even(*comm_), odd(*comm_);
  std::vector<std::span<float>> operands, next = operands_of(0);
  if (num_pieces > 0) post(even, 0, next);
  for (std::int64_t number = 0; number < num_pieces; ++number) {
    operands = std::move(next);
    Messages& current = number % 2 == 0 ? even : odd;
    current.wait();
    if (number + 1 < num_pieces) {
      next = operands_of(number + 1);
      post(number % 2 == 0 ? odd : even, number + 1, next);
    }
    IndexRange const range = piece_of(0, counts_[r], piece_, number);
    if (range.size() > 0) add_piece(at, operands, part(chunk, range));
  }
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
