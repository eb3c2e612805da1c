// A rank without tokens calls every kernel with no rows: nothing is read, sums over tokens are left as they are.
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/balance_loss.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/mla.h"
#include "kernels/permutation.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/router.h"
#include "kernels/swiglu.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

template <class T>
class NoRowsTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(NoRowsTest, Types);

constexpr std::int64_t d = 20;
constexpr std::int64_t experts = 4;
constexpr std::int64_t top_k = 2;

template <class T>
Matrix<T> none(std::int64_t cols) {
  return {nullptr, 0, cols};
}
template <class T>
Heads<T> no_heads(std::int64_t heads, std::int64_t dim) {
  return {nullptr, 0, heads, dim, heads * dim, dim};
}

/// Numbers that a sum over tokens starts from, in each of the kernels that have such sums.
struct Sums {
  std::vector<float> values = random_values<float>(experts * d * d, 1);
  Matrix<float> matrix(std::int64_t rows) { return {values.data(), rows, d}; }
};

template <class T>
void expect_untouched(std::function<void(Cpu const&, Sums&)> const& call) {
  Sums const before;
  on_every_place([&](Cpu const& at) {
    Sums sums;
    call(at, sums);
    EXPECT_TRUE(same_bits(sums.values, before.values));
  });
}

TYPED_TEST(NoRowsTest, Products) {
  using T = TypeParam;
  std::vector<T> const weight = random_values<T>(d * d, 1);
  Matrix<T const> const w(weight.data(), d, d);
  T const* const weights[] = {weight.data(), weight.data()};
  std::vector<std::int64_t> const no_offsets(3, 0), one_offset(1, 0), segment_offsets(7, 0);
  std::vector<Product<T>> const products(2, {none<T const>(d), w}), empty(2, {{nullptr, d, 0, 1}, none<T const>(d)});
  expect_untouched<T>([&](Cpu const& at, Sums& sums) {
    matmul<T, T>(at, none<T>(d), none<T const>(d), w);
    matmul<T, T>(at, none<T>(d), none<T const>(d), w, Accumulate::no, {.slices = 4});
    matmul_sliced<T, T>(at, none<T>(d), products, 2);
    grouped_matmul<T, T>(at, none<T>(d), none<T const>(d), weights, no_offsets);
    grouped_matmul_input<T, T>(at, none<T>(d), none<T const>(d), weights, no_offsets);
    // Weight gradients, K being the tokens.
    matmul<T, float>(at, sums.matrix(d), none<T const>(d).transposed(), none<T const>(d), Accumulate::yes);
    float* const gradients[] = {sums.values.data(), sums.values.data() + d * d};
    grouped_matmul_weight<T>(at, gradients, none<T const>(d), none<T const>(d), segment_offsets, 3);
    grouped_matmul_weight<T>(at, gradients, none<T const>(d), none<T const>(d), one_offset, 0);
  });
  Sums sums;
  matmul_sliced<T, float>(Cpu(2), sums.matrix(d), empty, 2);
  EXPECT_TRUE(same_bits(std::vector(sums.values.begin(), sums.values.begin() + d * d), std::vector<float>(d * d)));
  std::vector<std::int64_t> const with_row = {0, 1, 1};
  EXPECT_THROW((grouped_matmul<T, T>(Cpu(1), none<T>(d), none<T const>(d), weights, with_row)), std::logic_error);
}

TYPED_TEST(NoRowsTest, NormsActivationsAndEmbedding) {
  using T = TypeParam;
  std::vector<float> const gain(d, 1.0F);
  std::vector<T> const table = random_values<T>(experts * d, 1);
  expect_untouched<T>([&](Cpu const& at, Sums& sums) {
    std::span<float> const dgain(sums.values.data(), d);
    rmsnorm_forward<T>(at, none<T>(d), {}, none<T const>(d), gain, 1e-5F);
    rmsnorm_apply<T>(at, none<T>(d), {}, none<T const>(d), gain);
    rmsnorm_backward_input<T>(at, none<T>(d), none<T const>(d), none<T const>(d), {}, gain, Accumulate::yes);
    rmsnorm_backward_gain<T>(at, dgain, none<T const>(d), none<T const>(d), {});
    swiglu_forward<T>(at, none<T>(d), none<T const>(d), none<T const>(d));
    swiglu_backward<T>(at, none<T>(d), none<T>(d), none<T const>(d), none<T const>(d), none<T const>(d));
    embedding_forward<T>(at, none<T>(d), {table.data(), experts, d}, {});
    embedding_backward<T>(at, sums.matrix(experts), none<T const>(d), {});
    add<T>(at, std::span<T>(), {}, {});
    add_rounded<T, T>(at, {}, {}, {});
    bit_or<T>(at, {}, {});
    EXPECT_EQ(kernels::hash(at, std::span<T const>(), 5), 0U);
  });
}

TYPED_TEST(NoRowsTest, Attention) {
  using T = TypeParam;
  std::vector<float> const table(64);
  on_every_place([&](Cpu const& at) {
    for (AttentionShape const shape : {AttentionShape{0, 8, 1}, AttentionShape{2, 0, 1}}) {
      auto const q = no_heads<T>(4, 6), v = no_heads<T>(4, 5), k = no_heads<T>(2, 6), vk = no_heads<T>(2, 5);
      attention_forward<T>(at, v, {}, q, k, vk, shape);
      attention_backward<T>(at, q, k, vk, v, v, {}, q, k, vk, shape);
    }
    rope<T>(at, no_heads<T>(2, 8), table, {}, RopePairs::interleaved, Rotation::forward);
    rope<T>(at, no_heads<T>(2, 8), table, {}, RopePairs::half_split, Rotation::inverse);
    mla_assemble_keys<T>(at, no_heads<T>(2, 6), no_heads<T>(2, 4), none<T const>(2));
    mla_split_key_gradients<T>(at, no_heads<T>(2, 4), none<T>(2), no_heads<T>(2, 6), 2);
    mla_split_key_gradients_partial<T>(at, no_heads<T>(2, 4), none<float>(2), no_heads<T>(2, 6), 2);
  });
}

TYPED_TEST(NoRowsTest, Experts) {
  using T = TypeParam;
  RouterShape const shape{.experts = experts, .top_k = top_k};
  auto const row = none<std::int32_t>(top_k);
  on_every_place([&](Cpu const& at) {
    router_forward(at, none<float>(experts), row, none<float>(top_k), none<float>(experts), {}, shape);
    router_backward(at, none<float>(experts), none<float>(top_k), none<float>(experts), none<float>(experts), row,
                    none<float>(top_k), shape);
    std::vector<std::int64_t> load(experts, 7);
    router_count(load, row);
    EXPECT_EQ(load, std::vector<std::int64_t>(experts, 7));
    balance_loss(at, {}, none<float>(experts), none<float>(experts), row, shape, {.expert_alpha = 1}, 8, 1);
    std::vector<std::int64_t> offsets = {3};
    permutation_sort(offsets, row, row, row, experts, 8);
    EXPECT_EQ(offsets[0], 0);
    permutation_gather<T>(at, none<T>(d), none<T>(d), row);
    permutation_gather_backward<T>(at, none<T>(d), none<T>(d), row, row, Accumulate::yes);
    permutation_combine<T>(at, none<T>(d), none<T>(d), none<T>(d), none<T>(d), none<float>(top_k), row, row);
    permutation_combine<T>(at, none<T>(d), none<T>(d), {}, none<T>(d), none<float>(top_k), row, row);
    permutation_combine_backward<T>(at, none<T>(d), none<float>(top_k), none<T>(d), none<T>(d), none<float>(top_k),
                                    row);
  });
}

TYPED_TEST(NoRowsTest, Loss) {
  using T = TypeParam;
  VocabularyPart const part{d, 2, 0, 2};
  on_every_place([&](Cpu const& at) {
    cross_entropy_forward(at, {}, none<float>(d), {}, 2);
    cross_entropy_forward_backward<T>(at, {}, none<T>(d), none<float>(d), {}, 2, 1);
    cross_entropy_max(at, {}, {}, none<float>(d), {}, part);
    cross_entropy_sums(at, none<float>(2), none<float>(d), {}, {}, part);
    cross_entropy_finish<T>(at, {}, none<T>(d), none<float>(d), {}, none<float>(2), {}, {}, part, 1);
  });
}

}  // namespace
}  // namespace isotrain::kernels::test
