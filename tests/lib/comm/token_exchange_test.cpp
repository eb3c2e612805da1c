#include "lib/comm/token_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "lib/base/bfloat16.h"
#include "lib/base/random.h"
#include "tests/reference/tree_sum.h"

namespace isotrain::test {
namespace {

constexpr std::int64_t width = 5;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// N(0, 1) * 2^U(-8, 8): sums depend on the order.
float value(std::uint64_t stream, std::int64_t row, std::int64_t column) {
  Random const random(23, stream);
  auto const i = static_cast<std::uint64_t>(row * width + column);
  return static_cast<float>(random.normal(i) * std::exp2(16 * random.uniform_double((std::uint64_t{1} << 40) + i) - 8));
}

template <class T>
T residual_value(std::int64_t row, std::int64_t column) {
  return from_float<T>(value(1000, row, column));
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
Matrix<T> dense(std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()) / width, width};
}

/// What one rank with all slices makes of all rows.
template <class T, class R>
std::vector<T> expected_sum(std::int64_t rows, int slices, bool with_residual) {
  std::vector<T> all;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      float sum = reference::tree_sum(
          [&](std::int64_t slice) { return value(static_cast<std::uint64_t>(slice), row, column); }, slices);
      if (with_residual) sum = sum + to_float(residual_value<R>(row, column));
      all.push_back(from_float<T>(sum));
    }
  }
  return all;
}

/// The rows of `full` that belong to the rank of the split.
template <class T>
std::vector<T> own_rows(std::vector<T> const& full, TokenSplit const& split, int samples) {
  std::vector<T> mine;
  for (int sample = 0; sample < samples; ++sample) {
    auto const first = full.begin() + (sample * split.sequence() + split.positions().begin) * width;
    mine.insert(mine.end(), first, first + split.rows() * width);
  }
  return mine;
}

/// Each test for whole messages and messages in pieces of 8 bytes.
class TokenExchangeTest : public testing::TestWithParam<std::size_t> {
 protected:
  TokenExchange exchange(std::int64_t sequence, int slices) const { return {&comm_, sequence, slices}; }

  /// This rank's sums over subtrees of its slices.
  std::vector<std::vector<float>> partials(TokenSplit const& split, std::int64_t rows) const {
    std::vector<std::vector<float>> sums;
    for (TreeNode const node : subtrees(split.slices_of(split.rank()), split.slices())) {
      sums.emplace_back();
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < width; ++column) {
          auto const leaf = [&](std::int64_t slice) { return value(static_cast<std::uint64_t>(slice), row, column); };
          std::int64_t const leaves = std::int64_t{1} << node.level;
          sums.back().push_back(reference::tree_sum(leaf, split.slices(), node.index * leaves, leaves));
        }
      }
    }
    return sums;
  }

  template <class T, class R>
  std::vector<T> reduce(TokenExchange const& exchange, int samples, bool with_residual,
                        std::vector<std::vector<float>> sums) const {
    TokenSplit const& split = exchange.split();
    std::vector<Matrix<float>> matrices;
    for (auto& sum : sums) matrices.push_back(dense(sum));
    std::vector<R> all;
    for (std::int64_t row = 0; with_residual && row < samples * split.sequence(); ++row) {
      for (std::int64_t column = 0; column < width; ++column) all.push_back(residual_value<R>(row, column));
    }
    auto residual = with_residual ? own_rows(all, split, samples) : all;
    std::vector<float> workspace(static_cast<std::size_t>(exchange.workspace_size(width)), nan);
    std::vector<T> mine(static_cast<std::size_t>(samples * split.rows() * width), from_float<T>(nan));
    exchange.reduce_scatter<T, R>(at_, dense(mine), matrices, dense(residual), workspace, samples);
    return mine;
  }

  template <class T, class R>
  void expect_sums() const {
    for (auto const& [sequence, slices] : shapes()) {
      TokenExchange const tokens = exchange(sequence, slices);
      for (int const samples : {0, 1, 3}) {
        std::int64_t const rows = samples * sequence;
        for (bool const with_residual : {false, true}) {
          auto const sums = partials(tokens.split(), rows);
          ASSERT_EQ(static_cast<int>(sums.size()), tokens.num_partials());
          EXPECT_TRUE(same_bits(reduce<T, R>(tokens, samples, with_residual, sums),
                                own_rows(expected_sum<T, R>(rows, slices, with_residual), tokens.split(), samples)))
              << slices << " slices, " << samples << " samples of " << sequence << ", residual " << with_residual;
        }
      }
    }
  }

  /// (sequence, slices): sequences that the slices do not divide, some slices without positions.
  std::vector<std::tuple<std::int64_t, int>> shapes() const {
    std::vector<std::tuple<std::int64_t, int>> all;
    for (int const slices : {1, 2, 4, 6, 8, 12}) {
      if (slices % size_ != 0) continue;
      for (std::int64_t const sequence : {1, 5, 8, 11}) all.emplace_back(sequence, slices);
    }
    return all;
  }

  Cpu const at_{1};
  Communicator const comm_ = Communicator::duplicate(MPI_COMM_WORLD, GetParam());
  int const rank_ = comm_.rank();
  int const size_ = comm_.size();
};

INSTANTIATE_TEST_SUITE_P(Pieces, TokenExchangeTest, testing::Values(std::size_t{1} << 30, std::size_t{8}),
                         [](auto const& info) { return info.param == 8 ? "small" : "whole"; });

TEST_P(TokenExchangeTest, SumsAreTheTreeOverAllSlicesRoundedOnce) {
  expect_sums<float, float>();
  expect_sums<float, bfloat16>();
  expect_sums<bfloat16, float>();
  expect_sums<bfloat16, bfloat16>();
}

TEST_P(TokenExchangeTest, AnotherOrderGivesOtherBits) {
  // Partials that are chains over the own slices, as a sum by rank would have them.
  std::int64_t const rows = 40;
  TokenExchange const tokens = exchange(rows, 8);
  TokenSplit const& split = tokens.split();
  std::vector<std::vector<float>> chains(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < width; ++column) {
      IndexRange const slices = split.slices_of(rank_);
      float sum = value(static_cast<std::uint64_t>(slices.end - 1), row, column);
      for (std::int64_t slice = slices.end - 2; slice >= slices.begin; --slice) {
        sum += value(static_cast<std::uint64_t>(slice), row, column);
      }
      chains[0].push_back(sum);
    }
  }
  auto const expected = own_rows(expected_sum<float, float>(rows, 8, true), split, 1);
  EXPECT_TRUE(same_bits(reduce<float, float>(tokens, 1, true, partials(split, rows)), expected));
  if (split.num_slices() > 2) {
    EXPECT_FALSE(same_bits(reduce<float, float>(tokens, 1, true, chains), expected));
  }
  // The residual before the tree instead of after it: what adding it on one rank would give.
  auto early = partials(split, rows);
  for (std::int64_t i = 0; rank_ == 0 && i < rows * width; ++i) {
    early[0][static_cast<std::size_t>(i)] += residual_value<float>(i / width, i % width);
  }
  bool const differs = !same_bits(reduce<float, float>(tokens, 1, false, early), expected);
  EXPECT_EQ(differs, size_ > 1);
}

TEST_P(TokenExchangeTest, MineMayBeTheResidual) {
  TokenExchange const tokens = exchange(11, 4);
  auto sums = partials(tokens.split(), 22);
  std::vector<Matrix<float>> matrices;
  for (auto& sum : sums) matrices.push_back(dense(sum));
  std::vector<bfloat16> all;
  for (std::int64_t i = 0; i < 22 * width; ++i) all.push_back(residual_value<bfloat16>(i / width, i % width));
  auto mine = own_rows(all, tokens.split(), 2);
  std::vector<float> workspace(static_cast<std::size_t>(tokens.workspace_size(width)), nan);
  tokens.reduce_scatter<bfloat16, bfloat16>(at_, dense(mine), matrices, dense(mine), workspace, 2);
  EXPECT_TRUE(same_bits(mine, own_rows(expected_sum<bfloat16, bfloat16>(22, 4, true), tokens.split(), 2)));
}

TEST_P(TokenExchangeTest, GathersRowsToTheirPlaces) {
  for (auto const& [sequence, slices] : shapes()) {
    TokenExchange const tokens = exchange(sequence, slices);
    for (int const samples : {0, 1, 3}) {
      std::vector<std::int32_t> expected(static_cast<std::size_t>(samples * sequence * width));
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int32_t>(i);
      auto mine = own_rows(expected, tokens.split(), samples);
      std::vector<std::int32_t> full(expected.size(), -1);
      tokens.gather<std::int32_t>(dense(full), dense(mine), samples);
      EXPECT_EQ(full, expected) << slices << " slices, " << samples << " samples of " << sequence;
    }
  }
}

TEST_P(TokenExchangeTest, GathersInPlace) {
  TokenExchange const tokens = exchange(11, 4);
  std::vector<bfloat16> expected, full;
  for (std::int64_t i = 0; i < 11 * width; ++i) {
    IndexRange const own = tokens.split().positions();
    expected.push_back({static_cast<std::uint16_t>(i)});
    full.push_back(own.begin <= i / width && i / width < own.end ? expected.back() : bfloat16{0xffff});
  }
  auto const mine = dense(full).slice_rows(tokens.split().positions().begin, tokens.split().rows());
  tokens.gather<bfloat16>(dense(full), mine, 1);
  EXPECT_TRUE(same_bits(full, expected));
}

/// Bits of row `row` of an embedding's output: some are -0, others NaN with a payload, which adding would not keep.
template <class T>
T embedded(std::int64_t row, std::int64_t column) {
  if (column == 1) return from_float<T>(-0.0F);
  T special = from_float<T>(value(7, row, column));
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (column == 2) special.bits = 0xff81;
  }
  return special;
}

template <class T>
void expect_merge(TokenExchange const& tokens, std::int64_t sequence, int samples) {
  int const rank = tokens.split().rank(), ranks = tokens.split().ranks();
  std::vector<T> expected, candidates;
  for (std::int64_t row = 0; row < samples * sequence; ++row) {
    // Every fifth row is of no rank.
    bool const somewhere = row % 5 != 4;
    bool const here = somewhere && static_cast<int>(row * 7 % 4 % ranks) == rank;
    for (std::int64_t column = 0; column < width; ++column) {
      expected.push_back(somewhere ? embedded<T>(row, column) : T{});
      candidates.push_back(here ? expected.back() : T{});
    }
  }
  auto const wanted = own_rows(expected, tokens.split(), samples);
  std::vector<T> mine(wanted.size(), from_float<T>(nan)), workspace(wanted.size(), from_float<T>(nan));
  tokens.merge<T>(Cpu(1), dense(mine), dense(candidates), workspace, samples);
  EXPECT_TRUE(same_bits(mine, wanted)) << samples << " samples of " << sequence;
  // Were the candidates of one rank left out, it would show.
  if (samples > 0 && sequence >= 11 && ranks > 1) {
    EXPECT_FALSE(same_bits(own_rows(candidates, tokens.split(), samples), wanted));
  }
}

TEST_P(TokenExchangeTest, MergesTheRowsOfAnEmbeddingBitByBit) {
  for (auto const& [sequence, slices] : shapes()) {
    for (int const samples : {0, 1, 3}) {
      if (sequence >= 11 && slices > 4) continue;  // every rank has rows in the check of the check
      expect_merge<float>(exchange(sequence, slices), sequence, samples);
      expect_merge<bfloat16>(exchange(sequence, slices), sequence, samples);
    }
  }
}

TEST_P(TokenExchangeTest, NoticesARowThatTwoRanksHave) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  TokenExchange const tokens = exchange(8, 4);
  std::vector<float> candidates(8 * width, 1.0F), mine(static_cast<std::size_t>(tokens.split().rows() * width));
  std::vector<float> workspace(mine.size());
  EXPECT_THROW(tokens.merge<float>(at_, dense(mine), dense(candidates), workspace, 1), std::logic_error);
}

TEST_P(TokenExchangeTest, NoGroupIsOneRank) {
  TokenExchange const alone(nullptr, 11, 6);
  EXPECT_EQ(alone.num_partials(), 1);
  EXPECT_EQ(alone.workspace_size(width), 0);
  std::vector<float> sum, full(22 * width);
  for (float const total : expected_sum<float, float>(22, 6, false)) sum.push_back(total);
  EXPECT_TRUE(same_bits(reduce<bfloat16, float>(alone, 2, true, {sum}), expected_sum<bfloat16, float>(22, 6, true)));
  alone.gather<float>(dense(full), dense(sum), 2);
  EXPECT_TRUE(same_bits(full, sum));
  std::vector<float> mine(22 * width);
  alone.merge<float>(at_, dense(mine), dense(sum), {}, 2);
  EXPECT_TRUE(same_bits(mine, sum));
}

TEST_P(TokenExchangeTest, BrokenContractsAreSeen) {
  EXPECT_THROW(exchange(8, 4 * size_ + (size_ > 1 ? 1 : -4)), std::logic_error);
  TokenExchange const tokens = exchange(8, 4);
  std::int64_t const rows = tokens.split().rows();
  std::vector<float> full(8 * width), mine(static_cast<std::size_t>(rows * width)), few(width - 1);
  Matrix<float> const full_view = dense(full), mine_view = dense(mine), none(full.data(), 0, width);
  std::vector<float> workspace(static_cast<std::size_t>(tokens.workspace_size(width)));
  std::vector<Matrix<float>> const partials{full_view};
  auto const gather = [&](Matrix<float> to, Matrix<float> from) { tokens.gather<float>(to, from, 1); };
  EXPECT_THROW(gather(none, mine_view), std::logic_error);
  EXPECT_THROW(gather(full_view, none), std::logic_error);
  EXPECT_THROW(gather(full_view.slice_cols(0, 2), mine_view.slice_cols(0, 2)), std::logic_error);
  auto const reduce = [&](Matrix<float> to, std::span<Matrix<float> const> sums, Matrix<float const> residual,
                          std::span<float> work) {
    tokens.reduce_scatter<float, float>(at_, to, sums, residual, work, 1);
  };
  EXPECT_THROW(reduce(mine_view, {}, {}, workspace), std::logic_error);
  EXPECT_THROW(reduce(none, partials, {}, workspace), std::logic_error);
  EXPECT_THROW(reduce(mine_view, std::vector<Matrix<float>>{none}, {}, workspace), std::logic_error);
  EXPECT_THROW(reduce(mine_view, partials, mine_view.slice_rows(0, rows - 1), workspace), std::logic_error);
  EXPECT_THROW(tokens.merge<float>(at_, none, full_view, mine, 1), std::logic_error);
  EXPECT_THROW(tokens.merge<float>(at_, mine_view, none, mine, 1), std::logic_error);
  if (size_ > 1) {
    EXPECT_THROW(reduce(mine_view, partials, {}, few), std::logic_error);
    EXPECT_THROW(tokens.merge<float>(at_, mine_view, full_view, few, 1), std::logic_error);
  }
}

}  // namespace
}  // namespace isotrain::test
