#include "lib/base/tree.h"

#include <bit>

#include "lib/base/error.h"

namespace isotrain {

TreeCounter::TreeCounter(std::int64_t num_leaves)
    : num_leaves_(num_leaves), root_level_(std::bit_width(static_cast<std::uint64_t>(num_leaves - 1))) {
  expects(num_leaves >= 1, "a tree to have a leaf");
}

std::vector<TreeAdd> TreeCounter::push(TreeNode node) {
  expects(node.index << node.level < num_leaves_, "a node inside the tree");
  std::vector<TreeAdd> adds;
  stack_.push_back({node, num_pushed_++});
  while (true) {
    Sum& last = stack_.back();
    bool const is_left = last.node.index % 2 == 0;
    if (is_left && last.node.level < root_level_ && (last.node.index + 1) << last.node.level >= num_leaves_) {
      last.node = last.node.parent();  // its sibling has no leaves: nothing is added
    } else if (stack_.size() > 1 && stack_[stack_.size() - 2].node.is_left_of(last.node)) {
      std::int64_t const right = last.number;
      stack_.pop_back();
      adds.push_back({stack_.back().number, right});
      stack_.back().node = stack_.back().node.parent();
    } else {
      return adds;
    }
  }
}

std::vector<TreeNode> subtrees(IndexRange range, std::int64_t num_leaves) {
  expects(0 <= range.begin && range.begin <= range.end && range.end <= num_leaves, "a range inside the tree");
  TreeCounter counter(num_leaves);
  for (std::int64_t leaf = range.begin; leaf < range.end; ++leaf) counter.push({0, leaf});
  std::vector<TreeNode> nodes;
  for (TreeCounter::Sum const& sum : counter.sums()) nodes.push_back(sum.node);
  return nodes;
}

}  // namespace isotrain
