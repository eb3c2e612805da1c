// Products whose K is given in pieces that lie anywhere.
#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "lib/base/error.h"
#include "tests/kernels/matmul/cases.h"
#include "tests/support/isa.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

/// Products of given K, each operand in memory of its own and in another layout.
template <class T>
class Pieces {
 public:
  Pieces(std::int64_t m, std::int64_t n, std::vector<std::int64_t> const& lengths) {
    std::uint32_t seed = 1;
    for (std::int64_t const k : lengths) {
      auto const a = wild_numbers<T>(m * k, seed);
      auto const b = wild_numbers<T>(k * n, seed + 1);
      a_.emplace_back(Matrix<T const>(a.data(), m, k), layouts[seed % 3]);
      b_.emplace_back(Matrix<T const>(b.data(), k, n), layouts[(seed + 1) / 2 % 3]);
      products_.push_back({a_.back().const_view(), b_.back().const_view()});
      seed += 2;
    }
  }
  std::span<Product<T> const> products() const { return products_; }

 private:
  std::deque<Stored<T>> a_, b_;
  std::vector<Product<T>> products_;
};

/// C before the residual by definition: a chain through the products of a run, Tree over runs that have steps.
template <class T>
std::vector<float> definition(SumKind kind, std::span<Product<T> const> products, std::size_t slices) {
  FlushToZero const mode;
  std::int64_t const m = products[0].a.rows, n = products[0].b.cols;
  std::size_t const per_slice = products.size() / slices;
  // Missing leaves are skipped at their places.
  auto const tree = [&](auto const& self, std::vector<std::optional<float>> const& leaves, std::size_t first,
                        std::size_t width) -> std::optional<float> {
    if (first >= leaves.size()) return std::nullopt;
    if (width == 1) return leaves[first];
    auto const left = self(self, leaves, first, width / 2);
    auto const right = self(self, leaves, first + width / 2, width / 2);
    if (left && right) return *left + *right;
    return left ? left : right;
  };
  std::vector<float> c;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      std::vector<std::optional<float>> leaves(slices);
      for (std::size_t p = 0; p < products.size(); ++p) {
        auto const& [a, b] = products[p];
        if (a.cols == 0) continue;
        auto& leaf = leaves[p / per_slice];
        leaf = uncut_sum(
            kind, [&](std::int64_t k) { return to_float(a(i, k)); }, [&](std::int64_t k) { return to_float(b(k, j)); },
            0, a.cols, leaf.value_or(0.0F));
      }
      c.push_back(tree(tree, leaves, 0, 64).value_or(0.0F));
    }
  }
  return c;
}

struct Case {
  char const* what;
  std::int64_t m, n;
  std::size_t slices;
  std::vector<std::int64_t> lengths;
};
std::vector<Case> const cases = {
    {"one product", 33, 50, 1, {70}},
    {"one column, one row", 1, 1, 2, {3, 5}},
    {"no steps", 5, 7, 2, {0, 0}},
    {"a run of three", 17, 33, 1, {31, 33, 64}},
    {"two runs of two", 32, 32, 2, {5, 32, 40, 1}},
    {"empty product first, middle, last", 15, 40, 2, {0, 9, 33, 0, 7, 0}},
    {"last slice short, one missing", 14, 31, 4, {9, 9, 4, 0}},
    {"first slice missing", 14, 31, 4, {0, 9, 9, 9}},
    {"holes keep their places", 35, 65, 5, {9, 0, 9, 9, 9}},
    {"half a tree missing", 35, 65, 8, {9, 9, 0, 0, 0, 0, 9, 9}},
    {"one slice of many", 35, 65, 8, {0, 0, 0, 0, 0, 9, 0, 0}},
    {"sixteen", 20, 20, 16, std::vector<std::int64_t>(16, 33)},
    {"many tiny products", 9, 40, 2, std::vector<std::int64_t>(400, 1)},
    {"longer than a block", 9, 9, 3, {300, 257, 256, 20, 300, 515}},
};

template <class T, class Out>
void test_against_definition(Kind kind) {
  RestoreIsa const restore;
  for (Case const& each : cases) {
    Pieces<T> const pieces(each.m, each.n, each.lengths);
    auto const sum = definition<T>(kind.sum, pieces.products(), each.slices);
    auto const residual = wild_numbers<Out>(each.m * each.n, 99);
    std::vector<Out> rounded, added;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      FlushToZero const mode;
      rounded.push_back(from_float<Out>(sum[i]));
      added.push_back(from_float<Out>(sum[i] + to_float(residual[i])));
    }
    for (Isa const isa : available_isas_and_amx()) {
      Cpu const at(2, kind.bf16, isa);
      for (Layout const layout : layouts) {
        Stored<Out> c(each.m, each.n, layout);
        matmul_sliced<T, Out>(at, c.view(), pieces.products(), static_cast<int>(each.slices));
        ASSERT_TRUE(same_bits(c.const_view(), Matrix<Out const>(rounded.data(), each.m, each.n)))
            << kind.name << ": " << each.what;
        matmul_sliced<T, Out>(at, c.view(), pieces.products(), static_cast<int>(each.slices),
                              {residual.data(), each.m, each.n});
        ASSERT_TRUE(same_bits(c.const_view(), Matrix<Out const>(added.data(), each.m, each.n)))
            << kind.name << " with a residual: " << each.what;
        ASSERT_TRUE(c.surroundings_untouched()) << kind.name << ": " << each.what;
      }
    }
  }
}

TEST(MatmulSliced, EqualsTheDefinition) {
  test_against_definition<float, float>(chain_kind);
  test_against_definition<bfloat16, float>(tiles_kind);
  test_against_definition<bfloat16, bfloat16>(tiles_kind);
  test_against_definition<bfloat16, float>(pairs_kind);
  test_against_definition<bfloat16, bfloat16>(pairs_kind);
}

template <class T>
std::vector<float> sliced(Cpu const& at, std::span<Product<T> const> products, int slices) {
  std::int64_t const m = products[0].a.rows, n = products[0].b.cols;
  std::vector<float> c(static_cast<std::size_t>(m * n));
  matmul_sliced<T, float>(at, {c.data(), m, n}, products, slices);
  return c;
}

/// Large enough to be packed in parts, and for two threads.
template <class T>
void test_large(Kind kind) {
  RestoreIsa const restore;
  std::int64_t const m = 70, n = 300, run = 1300;
  for (int const slices : {1, 3, 4}) {
    auto const a = wild_numbers<T>(m * run * slices, 1);
    auto const b = wild_numbers<T>(n * run * slices, 2);
    Matrix<T const> const whole_a(a.data(), m, run * slices);
    Matrix<T const> const whole_b(b.data(), run * slices, n);
    std::vector<std::vector<T>> own;  // memory of each slice of B
    std::vector<Product<T>> products;
    for (int s = 0; s < slices; ++s) {
      own.emplace_back(b.begin() + s * run * n, b.begin() + (s + 1) * run * n);
      products.push_back({whole_a.slice_cols(s * run, run), {own.back().data(), run, n}});
    }
    for (Isa const isa : available_isas_and_amx()) {
      if (isa == Isa::scalar) continue;
      Cpu const at(2, kind.bf16, isa);
      std::vector<float> wanted(static_cast<std::size_t>(m * n));
      matmul(at, Matrix<float>(wanted.data(), m, n), whole_a, whole_b, Accumulate::no, {.slices = slices});
      auto const got = sliced<T>(at, products, slices);
      ASSERT_EQ(std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)), 0) << kind.name << slices;
      std::swap(products.front(), products.back());
      if (slices > 1) {
        auto const other = sliced<T>(at, products, slices);
        EXPECT_NE(std::memcmp(other.data(), wanted.data(), wanted.size() * sizeof(float)), 0) << "the order counts";
      }
      std::swap(products.front(), products.back());
    }
  }
}

TEST(MatmulSliced, EqualsTheProductOfWholeMatrices) {
  test_large<float>(chain_kind);
  test_large<bfloat16>(tiles_kind);
  test_large<bfloat16>(pairs_kind);
}

TEST(MatmulSliced, ARunIsNotTwoSlicesAndAProductNotPartOfAnother) {
  for (Kind const kind : {tiles_kind, pairs_kind}) {
    Cpu const at(1, kind.bf16);
    Pieces<bfloat16> const pieces(40, 40, {33, 33});
    auto const run = sliced(at, pieces.products(), 1);
    auto const slices = sliced(at, pieces.products(), 2);
    EXPECT_NE(std::memcmp(run.data(), slices.data(), run.size() * sizeof(float)), 0) << kind.name;
    // The same numbers as one product of 66 steps: blocks and pairs lie elsewhere.
    std::vector<bfloat16> a(40 * 66), b(66 * 40);
    Matrix<bfloat16> const whole_a(a.data(), 40, 66), whole_b(b.data(), 66, 40);
    for (std::int64_t k = 0; k < 66; ++k) {
      auto const& product = pieces.products()[static_cast<std::size_t>(k / 33)];
      for (std::int64_t i = 0; i < 40; ++i) whole_a(i, k) = product.a(i, k % 33), whole_b(k, i) = product.b(k % 33, i);
    }
    Product<bfloat16> const whole{whole_a, whole_b};
    auto const uncut = sliced<bfloat16>(at, {&whole, 1}, 1);
    EXPECT_NE(std::memcmp(run.data(), uncut.data(), run.size() * sizeof(float)), 0) << kind.name;
  }
}

TEST(MatmulSliced, RefusesWhatDoesNotFit) {
  Pieces<float> const pieces(4, 5, {3, 3, 3});
  std::vector<float> memory(30);
  Matrix<float> const c(memory.data(), 4, 5);
  EXPECT_THROW((matmul_sliced<float, float>(Cpu(), c, pieces.products(), 2)), std::logic_error);
  EXPECT_THROW((matmul_sliced<float, float>(Cpu(), c, pieces.products(), 0)), std::logic_error);
  EXPECT_THROW((matmul_sliced<float, float>(Cpu(), c, {}, 1)), std::logic_error);
  EXPECT_THROW((matmul_sliced<float, float>(Cpu(), {memory.data(), 5, 4}, pieces.products(), 1)), std::logic_error);
  EXPECT_THROW((matmul_sliced<float, float>(Cpu(), c, pieces.products(), 1, {memory.data(), 5, 4})), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
