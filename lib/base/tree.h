#pragma once

#include <cstdint>
#include <vector>

/// Tree(V) of the numerics contract: the perfect binary tree over V logical indices, the left operand the lower index,
/// missing leaves skipped. Slices and lanes are summed in this order whoever holds them.
namespace isotrain {

/// A contiguous range of logical indices, [begin, end).
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(IndexRange const&) const = default;
};

/// The node that covers leaves [index * 2^level, (index + 1) * 2^level), as far as they exist.
struct TreeNode {
  int level = 0;
  std::int64_t index = 0;

  TreeNode parent() const { return {level + 1, index / 2}; }
  bool is_left_of(TreeNode right) const { return level == right.level && index % 2 == 0 && index + 1 == right.index; }
  bool operator==(TreeNode const&) const = default;
};

/// One addition of a tree sum: sum number `left` += sum number `right`.
struct TreeAdd {
  std::int64_t left = 0;
  std::int64_t right = 0;

  bool operator==(TreeAdd const&) const = default;
};

/// Adds up nodes of Tree(num_leaves) that come in ascending order without gaps, each as soon as its sibling is there:
/// like a binary counter. Sums are numbered in the order of their push; a sum of two keeps the number of the left one.
class TreeCounter {
 public:
  explicit TreeCounter(std::int64_t num_leaves);

  /// Takes the next node and returns the additions that are due, in order.
  std::vector<TreeAdd> push(TreeNode node);

  struct Sum {
    TreeNode node;
    std::int64_t number = 0;
  };
  /// What could not be added up yet, ascending. One sum once all leaves are in.
  std::vector<Sum> const& sums() const { return stack_; }

 private:
  std::int64_t num_leaves_;
  int root_level_;
  std::int64_t num_pushed_ = 0;
  std::vector<Sum> stack_;
};

/// The nodes of Tree(num_leaves) that remain when the leaves of the range are added up, ascending.
/// Requires 0 <= begin <= end <= num_leaves.
std::vector<TreeNode> subtrees(IndexRange range, std::int64_t num_leaves);

}  // namespace isotrain
