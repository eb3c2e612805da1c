#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

template <class T>
class EmbeddingTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(EmbeddingTest, Types);

constexpr std::int64_t vocabulary = 11;

/// Tokens that come often, once and never.
std::vector<std::int32_t> tokens(std::int64_t rows) {
  std::vector<std::int32_t> t;
  for (std::int64_t n = 0; n < rows; ++n) t.push_back(static_cast<std::int32_t>(n % 3 ? n * n % 7 : 10));
  return t;
}

template <class T>
std::vector<float> backward(Cpu const& at, std::vector<T> const& dy, std::vector<std::int32_t> const& token,
                            std::int64_t d, std::int64_t padding, std::vector<float> const& start) {
  Padded<T> gradient(static_cast<std::int64_t>(token.size()), d, padding, dy);
  Padded<float> table(vocabulary, d, padding, start);
  embedding_backward<T>(at, table.view(), gradient.view(), token);
  EXPECT_TRUE(table.padding_is_untouched());
  return table.values();
}

TYPED_TEST(EmbeddingTest, ForwardCopiesRows) {
  using T = TypeParam;
  for (std::int64_t const d : {1, 16, 33}) {
    auto const table = random_values<T>(vocabulary * d, 1);
    auto const token = tokens(40);
    on_every_place([&](Cpu const& at) {
      Padded<T> y(40, d, 3), t(vocabulary, d, 2, table);
      embedding_forward<T>(at, y.view(), t.view(), token);
      auto const values = y.values();
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], table[token[i / d] * d + i % d]);
      EXPECT_TRUE(y.padding_is_untouched());
    });
  }
}

TYPED_TEST(EmbeddingTest, BackwardAddsInTheOrderOfTheRows) {
  using T = TypeParam;
  for (std::int64_t const d : {1, 15, 16, 33, 200}) {
    auto const token = tokens(60);
    auto const dy = random_values<T>(60 * d, 1);
    auto const start = random_values<float>(vocabulary * d, 2);
    auto expected = start;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      float& sum = expected[token[i / d] * d + i % d];
      sum = sum + to_float(dy[i]);
    }
    auto reversed = start;
    for (std::size_t i = dy.size(); i-- > 0;) {
      float& sum = reversed[token[i / d] * d + i % d];
      sum = sum + to_float(dy[i]);
    }
    EXPECT_FALSE(same_bits(reversed, expected));  // the order matters for these numbers
    on_every_place([&](Cpu const& at) {
      for (int const padding : {0, 1, 16})
        EXPECT_TRUE(same_bits(backward(at, dy, token, d, padding, start), expected)) << d;
    });
  }
}

TYPED_TEST(EmbeddingTest, BackwardDoesNotDependOnTheMicroBatch) {
  auto const token = tokens(60);
  auto const dy = random_values<TypeParam>(60 * 20, 1);
  std::vector<float> const zero(vocabulary * 20);
  auto const whole = backward(Cpu(1), dy, token, 20, 0, zero);
  auto cut = zero;
  for (int n = 0; n < 60; n += 15) {
    cut = backward<TypeParam>(Cpu(2), {dy.begin() + n * 20, dy.begin() + (n + 15) * 20},
                              {token.begin() + n, token.begin() + n + 15}, 20, 0, cut);
  }
  EXPECT_TRUE(same_bits(cut, whole));
}

/// The vocabulary cut over ranks: what each adds, put together, is what one does with all of it.
TYPED_TEST(EmbeddingTest, PartsOfTheVocabularyAreTheWhole) {
  using T = TypeParam;
  constexpr std::int64_t d = 33;
  auto const token = tokens(60);
  auto const table = random_values<T>(vocabulary * d, 1), dy = random_values<T>(60 * d, 2);
  auto const start = random_values<float>(vocabulary * d, 3);
  std::vector<T> whole(60 * d);
  embedding_forward<T>(Cpu(1), {whole.data(), 60, d}, {table.data(), vocabulary, d}, token);
  auto const whole_gradient = backward(Cpu(1), dy, token, d, 0, start);
  on_every_place([&](Cpu const& at) {
    auto gradient = start;
    std::vector<T> y(60 * d);
    for (auto const& [begin, end] : {std::pair{0, 4}, {4, 4}, {4, 10}, {10, 11}}) {
      auto local = token;
      for (auto& t : local) t = t >= begin && t < end ? t - begin : absent_token;
      std::vector<T> part(60 * d, from_float<T>(7));
      embedding_forward<T>(at, {part.data(), 60, d}, {table.data() + begin * d, end - begin, d}, local);
      for (std::int64_t i = 0; i < 60 * d; ++i) {
        if (local[i / d] == absent_token) {
          ASSERT_TRUE(same_bits<T>({part[i]}, {from_float<T>(7)}));
        } else {
          y[i] = part[i];
        }
      }
      embedding_backward<T>(at, {gradient.data() + begin * d, end - begin, d}, {dy.data(), 60, d}, local);
    }
    EXPECT_TRUE(same_bits(y, whole));
    EXPECT_TRUE(same_bits(gradient, whole_gradient));
  });
  EXPECT_FALSE(same_bits(start, whole_gradient));  // the comparison can fail
}

TYPED_TEST(EmbeddingTest, NothingAndRefusals) {
  using T = TypeParam;
  std::vector<T> data(vocabulary * 4);
  std::vector<float> gradient(vocabulary * 4);
  std::vector<std::int32_t> const none, two = {1, 2}, high = {1, vocabulary}, negative = {-2, 1};
  Matrix<T> const table(data.data(), vocabulary, 4), y(data.data(), 2, 4), wide(data.data(), 2, 5),
      empty(nullptr, 0, 4);
  Matrix<float> const dtable(gradient.data(), vocabulary, 4);
  EXPECT_NO_THROW(embedding_forward<T>(Cpu(1), empty, table, none));
  EXPECT_NO_THROW(embedding_backward<T>(Cpu(1), dtable, empty, none));
  EXPECT_THROW(embedding_forward<T>(Cpu(1), wide, table, two), std::logic_error);
  EXPECT_THROW(embedding_forward<T>(Cpu(1), y, table, none), std::logic_error);
  EXPECT_THROW(embedding_forward<T>(Cpu(1), y, table, high), std::logic_error);
  EXPECT_THROW(embedding_backward<T>(Cpu(1), dtable, y, negative), std::logic_error);
  EXPECT_THROW(embedding_backward<T>(Cpu(1), dtable, wide, two), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
