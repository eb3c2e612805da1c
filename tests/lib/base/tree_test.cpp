#include "lib/base/tree.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

/// The definition, written as a formula: "((0+1)+2)".
std::string formula(TreeNode node, std::int64_t num_leaves) {
  if (node.index << node.level >= num_leaves) return "";
  if (node.level == 0) return std::to_string(node.index);
  std::string const left = formula({node.level - 1, 2 * node.index}, num_leaves);
  std::string const right = formula({node.level - 1, 2 * node.index + 1}, num_leaves);
  return right.empty() ? left : "(" + left + "+" + right + ")";
}

TreeNode root_of(std::int64_t num_leaves) {
  int level = 0;
  while (std::int64_t{1} << level < num_leaves) ++level;
  return {level, 0};
}

/// Pushes nodes and carries the additions out on formulas.
class Sums {
 public:
  explicit Sums(std::int64_t num_leaves) : counter_(num_leaves) {}
  void push(TreeNode node, std::string const& value) {
    std::int64_t const number = static_cast<std::int64_t>(values_.size());
    values_[number] = value;
    for (TreeAdd add : counter_.push(node))
      values_[add.left] = "(" + values_[add.left] + "+" + values_[add.right] + ")";
  }
  std::vector<std::string> result() {
    std::vector<std::string> texts;
    for (auto const& sum : counter_.sums()) texts.push_back(values_[sum.number]);
    return texts;
  }
  std::vector<TreeCounter::Sum> const& sums() const { return counter_.sums(); }

 private:
  TreeCounter counter_;
  std::map<std::int64_t, std::string> values_;
};

TEST(Tree, SkipsMissingLeaves) {
  EXPECT_EQ(formula(root_of(3), 3), "((0+1)+2)");
  EXPECT_EQ(formula(root_of(5), 5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(formula(root_of(6), 6), "(((0+1)+(2+3))+(4+5))");
}

TEST(Tree, CounterGivesTheDefinition) {
  for (std::int64_t n = 1; n <= 40; ++n) {
    Sums sums(n);
    for (std::int64_t leaf = 0; leaf < n; ++leaf) sums.push({0, leaf}, std::to_string(leaf));
    EXPECT_EQ(sums.result(), std::vector<std::string>{formula(root_of(n), n)});
  }
}

TEST(Tree, AnyCutIntoRangesGivesTheDefinition) {
  for (std::int64_t n = 1; n <= 17; ++n) {
    for (std::int64_t a = 0; a <= n; ++a) {
      for (std::int64_t b = a; b <= n; ++b) {
        Sums whole(n);
        for (IndexRange range : {IndexRange{0, a}, IndexRange{a, b}, IndexRange{b, n}}) {
          for (TreeNode node : subtrees(range, n)) whole.push(node, formula(node, n));
        }
        EXPECT_EQ(whole.result(), std::vector<std::string>{formula(root_of(n), n)}) << n << " " << a << " " << b;
      }
    }
  }
}

TEST(Tree, RangesAreFewSubtrees) {
  EXPECT_EQ(subtrees({0, 8}, 8), (std::vector<TreeNode>{{3, 0}}));
  EXPECT_EQ(subtrees({3, 6}, 8), (std::vector<TreeNode>{{0, 3}, {1, 2}}));
  EXPECT_EQ(subtrees({1, 8}, 8), (std::vector<TreeNode>{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(subtrees({4, 7}, 7), (std::vector<TreeNode>{{2, 1}}));  // leaf 7 does not exist
  EXPECT_EQ(subtrees({5, 6}, 6), (std::vector<TreeNode>{{0, 5}}));
  EXPECT_EQ(subtrees({2, 2}, 4), std::vector<TreeNode>{});
}

TEST(Tree, BrokenContractsAreSeen) {
  EXPECT_THROW(TreeCounter(0), std::logic_error);
  EXPECT_THROW(TreeCounter(3).push({0, 3}), std::logic_error);
  EXPECT_THROW(subtrees({2, 5}, 4), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
