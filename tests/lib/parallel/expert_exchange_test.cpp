#include "lib/parallel/expert_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/permutation.h"
#include "kernels/router.h"
#include "lib/base/random.h"

namespace isotrain::test {
namespace {

/// Who a routed row is: its columns.
using Row = std::array<std::int32_t, 4>;  // expert, source, sample, position
constexpr std::int64_t width = std::tuple_size_v<Row>;
constexpr std::int32_t poison = -7;

enum class Skew { none, one_expert, no_tokens };

/// What all ranks together route in one turn, known to each.
struct Turn {
  int tensor_ranks, experts, max_samples;
  std::uint64_t key;
  Skew skew = Skew::none;
  std::int64_t sequence = 5;

  /// 0 to max_samples; source 0 has all, with an even key source 1 sits out.
  int samples(int source) const {
    if (source == 0) return max_samples;
    if (source == 1 && key % 2 == 0) return 0;
    return static_cast<int>(Random(key, 1).bits(static_cast<std::uint64_t>(source)) %
                            static_cast<std::uint64_t>(max_samples + 1));
  }
  /// Expert 3 gets no token.
  bool chosen(Row row) const {
    if (skew == Skew::no_tokens || row[0] == 3) return false;
    if (skew == Skew::one_expert) return row[0] == 0;
    std::uint64_t i = 0;
    for (std::int32_t const part : row) i = i * 64 + static_cast<std::uint64_t>(part);
    return Random(key, 2).bits(i) % 3 == 0;
  }
  /// Positions of a tensor rank: with more tensor ranks than one, the first has one more.
  IndexRange positions(int tensor_rank) const {
    std::int64_t const cut = tensor_ranks == 1 ? sequence : sequence / 2 + 1;
    return tensor_rank == 0 ? IndexRange{0, cut} : IndexRange{cut, sequence};
  }
};

struct Rows {
  std::vector<Row> rows;
  std::vector<std::int64_t> offsets{0};  // after every (expert, ..., sample)

  Matrix<std::int32_t> view() {
    return {reinterpret_cast<std::int32_t*>(rows.data()), static_cast<std::int64_t>(rows.size()), width};
  }
  void add(Turn const& turn, int expert, int source, int sample, IndexRange positions) {
    for (std::int64_t p = positions.begin; p < positions.end && sample < turn.samples(source); ++p) {
      Row const row{expert, source, sample, static_cast<std::int32_t>(p)};
      if (turn.chosen(row)) rows.push_back(row);
    }
    offsets.push_back(static_cast<std::int64_t>(rows.size()));
  }
};

/// What one rank holding everything has for the experts of a range, with `samples` runs for each source.
Rows canonical(Turn const& turn, IndexRange experts, int sources, int samples) {
  Rows all;
  for (std::int64_t e = experts.begin; e < experts.end; ++e) {
    for (int source = 0; source < sources; ++source) {
      for (int s = 0; s < samples; ++s) all.add(turn, static_cast<int>(e), source, s, {0, turn.sequence});
    }
  }
  return all;
}

Rows routed_rows(Turn const& turn, int rank) {
  Rows mine;
  int const source = rank / turn.tensor_ranks;
  for (int e = 0; e < turn.experts; ++e) {
    for (int s = 0; s < turn.samples(source); ++s) {
      mine.add(turn, e, source, s, turn.positions(rank % turn.tensor_ranks));
    }
  }
  return mine;
}

class ExpertExchangeTest : public testing::TestWithParam<std::size_t> {
 protected:
  void expect_round_trip(Turn const& turn) const {
    SCOPED_TRACE(std::to_string(turn.experts) + " experts, " + std::to_string(turn.tensor_ranks) + " tensor ranks, " +
                 std::to_string(turn.max_samples) + " samples, key " + std::to_string(turn.key));
    // In this turn, no source has as many samples as it might.
    ExpertExchange const exchange(&comm_, turn.tensor_ranks, turn.experts, turn.max_samples + 1);
    Rows routed = routed_rows(turn, rank_);
    Route const route = exchange.route(routed.offsets, turn.samples(rank_ / turn.tensor_ranks));

    int samples = 0;
    for (int source = 0; source < exchange.sources(); ++source) samples = std::max(samples, turn.samples(source));
    Rows expected = canonical(turn, exchange.experts(), exchange.sources(), samples);
    EXPECT_EQ(route.samples(), samples);
    EXPECT_EQ(route.routed_rows(), static_cast<std::int64_t>(routed.rows.size()));
    EXPECT_EQ(route.received_rows(), static_cast<std::int64_t>(expected.rows.size()));
    EXPECT_EQ(std::vector(route.offsets().begin(), route.offsets().end()), expected.offsets);
    std::vector<std::int64_t> of_experts;
    for (std::int64_t e = 0; e <= exchange.experts().size(); ++e) {
      of_experts.push_back(expected.offsets[static_cast<std::size_t>(e * exchange.sources() * samples)]);
    }
    EXPECT_EQ(std::vector(route.expert_offsets().begin(), route.expert_offsets().end()), of_experts);
    for (int rank = 0; rank < size_; ++rank) {
      auto const in = [](IndexRange range) {
        return [range](Row const& row) { return range.begin <= row[0] && row[0] < range.end; };
      };
      EXPECT_EQ(route.rows_to(rank),
                std::count_if(routed.rows.begin(), routed.rows.end(), in(exchange.experts_of(rank))));
      std::vector<Row> const theirs = routed_rows(turn, rank).rows;
      EXPECT_EQ(route.rows_from(rank), std::count_if(theirs.begin(), theirs.end(), in(exchange.experts())));
    }
    EXPECT_EQ(route.workspace_rows(), route.received_rows() - route.rows_from(rank_));

    Rows received;
    received.rows.resize(expected.rows.size(), {poison, poison, poison, poison});
    std::vector<std::int32_t> workspace(static_cast<std::size_t>(route.workspace_rows() * width), poison);
    exchange.dispatch<std::int32_t>(at_, route, received.view(), routed.view(), workspace);
    EXPECT_EQ(received.rows, expected.rows);

    // What comes back is another function of each row than what went.
    std::fill(workspace.begin(), workspace.end(), poison);
    std::vector<Row> const sent = routed.rows;
    for (Row& row : received.rows) row = {row[3], row[2], row[1], row[0] + 1000};
    std::fill(routed.rows.begin(), routed.rows.end(), Row{poison, poison, poison, poison});
    exchange.collect<std::int32_t>(at_, route, routed.view(), received.view(), workspace);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(routed.rows[i], (Row{sent[i][3], sent[i][2], sent[i][1], sent[i][0] + 1000}));
    }
  }

  std::vector<int> tensor_ranks() const { return size_ % 2 == 0 ? std::vector{1, 2} : std::vector{1}; }

  Cpu const at_{1};
  Communicator const comm_ = Communicator::duplicate(MPI_COMM_WORLD, GetParam());
  int const rank_ = comm_.rank();
  int const size_ = comm_.size();
};

INSTANTIATE_TEST_SUITE_P(Pieces, ExpertExchangeTest, testing::Values(std::size_t{1} << 30, std::size_t{8}),
                         [](auto const& info) { return info.param == 8 ? "small" : "whole"; });

TEST_P(ExpertExchangeTest, ReceivedIsWhatOneRankWithEverythingHas) {
  for (int const tensor : tensor_ranks()) {
    for (int const experts : {1, 4, 8, 13}) {  // fewer than ranks, as many, uneven
      for (int const samples : {1, 3}) expect_round_trip({tensor, experts, samples, 5});
    }
  }
}

TEST_P(ExpertExchangeTest, AnyRouting) {
  for (int const tensor : tensor_ranks()) {
    for (std::uint64_t key = 10; key < 40; ++key) {
      auto const pick = [&](std::uint64_t i, std::uint64_t below) {
        return static_cast<int>(Random(key, 3).bits(i) % below);
      };
      expect_round_trip({tensor, 1 + pick(0, 20), pick(1, 4), key, Skew::none, 2 + pick(2, 12)});
    }
  }
}

TEST_P(ExpertExchangeTest, AllTokensForOneExpert) {
  for (int const tensor : tensor_ranks()) expect_round_trip({tensor, 8, 2, 6, Skew::one_expert});
}

TEST_P(ExpertExchangeTest, NoTokens) {
  for (int const tensor : tensor_ranks()) {
    expect_round_trip({tensor, 8, 2, 6, Skew::no_tokens});
    expect_round_trip({tensor, 8, 0, 6});
  }
}

TEST_P(ExpertExchangeTest, TheOrderOfArrivalIsAnotherOne) {
  // What a plain all-to-all would give: rows by rank, then by expert.
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  Turn const turn{2, 8, 3, 5, Skew::none, 12};
  int const sources = size_ / 2;
  Rows by_rank;
  for (int rank = 0; rank < size_; ++rank) {
    for (int e = 0; e < 4; ++e) {
      for (int s = 0; s < 3; ++s) by_rank.add(turn, e, rank / 2, s, turn.positions(rank % 2));
    }
  }
  Rows const all = canonical(turn, {0, 4}, sources, 3);
  EXPECT_EQ(by_rank.rows.size(), all.rows.size());
  EXPECT_GT(all.rows.size(), 10u);
  EXPECT_NE(by_rank.rows, all.rows);
}

TEST(ExpertExchange, RowsOfAnyTypeAndSeveralThreads) {
  // Runs of rows that are long enough for several threads.
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD);
  Turn const turn{1, 4, 2, 5, Skew::none, 60};
  ExpertExchange const exchange(&comm, 1, 4, 2);
  Rows const mine = routed_rows(turn, comm.rank());
  Rows const expected = canonical(turn, exchange.experts(), comm.size(), 2);
  Route const route = exchange.route(mine.offsets, turn.samples(comm.rank()));
  std::int64_t const long_width = 30001;
  auto const bytes = [&](std::vector<Row> const& rows) {
    std::vector<std::uint8_t> all;
    for (Row const& row : rows) {
      for (std::int64_t c = 0; c < long_width; ++c) {
        all.push_back(static_cast<std::uint8_t>(row[static_cast<std::size_t>(c % 4)] * 5 + c % 251));
      }
    }
    return all;
  };
  auto const view = [&](std::vector<std::uint8_t>& all) {
    return Matrix<std::uint8_t>(all.data(), static_cast<std::int64_t>(all.size()) / long_width, long_width);
  };
  std::vector<std::uint8_t> routed = bytes(mine.rows), received(expected.rows.size() * 30001), back(routed.size());
  std::vector<std::uint8_t> workspace(static_cast<std::size_t>(route.workspace_rows() * long_width));
  Cpu const threads(3);
  exchange.dispatch<std::uint8_t>(threads, route, view(received), view(routed), workspace);
  EXPECT_TRUE(received == bytes(expected.rows));
  exchange.collect<std::uint8_t>(threads, route, view(back), view(received), workspace);
  EXPECT_TRUE(back == routed);
}

/// Ranks of the group that a single token of this rank goes to, for many tokens.
struct Destinations {
  std::size_t most = 0;   // of any token
  bool in_groups = true;  // never to a rank that has no expert of the token's groups
  bool all_there = true;  // top_k rows for each
};

Destinations destinations(Communicator const& comm, kernels::RouterShape const& shape) {
  ExpertExchange const exchange(&comm, 1, shape.experts, 1);
  int const group_size = shape.experts / shape.num_groups;
  Destinations found;
  for (std::uint64_t token = 0; token < 25; ++token) {
    std::vector<float> logits(static_cast<std::size_t>(shape.experts)), score = logits, weight(logits.size());
    fill_normal(logits, 0, 100 + token, static_cast<std::uint64_t>(comm.rank()), 1);
    std::vector<std::int32_t> expert(static_cast<std::size_t>(shape.top_k)), row = expert, order = expert;
    auto const choices = [&](auto& values) { return Matrix(values.data(), 1, shape.top_k); };
    auto const of_experts = [&](auto& values) { return Matrix(values.data(), 1, shape.experts); };
    kernels::router_forward(Cpu(1), of_experts(score), choices(expert), choices(weight), of_experts(logits), {}, shape);
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(shape.experts) + 1);
    kernels::permutation_sort(offsets, choices(row), choices(order), choices(expert), shape.experts, 1);

    Route const route = exchange.route(offsets, 1);
    std::set<int> groups;
    for (std::int32_t const e : expert) groups.insert(e / group_size);
    std::size_t ranks = 0;
    for (int rank = 0; rank < comm.size(); ++rank) {
      if (route.rows_to(rank) == 0) continue;
      ++ranks;
      IndexRange const owned = exchange.experts_of(rank);
      found.in_groups &= std::any_of(groups.begin(), groups.end(), [&](std::int64_t group) {
        return owned.begin < (group + 1) * group_size && group * group_size < owned.end;
      });
    }
    found.most = std::max(found.most, ranks);
    found.all_there &= route.routed_rows() == shape.top_k;
  }
  return found;
}

TEST_P(ExpertExchangeTest, ATokenTravelsToTheRanksOfItsGroupsOnly) {
  kernels::RouterShape shape;
  shape.experts = 8 * size_;
  shape.top_k = 8;
  shape.num_groups = size_;
  shape.top_groups = std::min(2, size_);
  Destinations const limited = destinations(comm_, shape);
  EXPECT_TRUE(limited.all_there);
  EXPECT_TRUE(limited.in_groups);
  EXPECT_LE(limited.most, 2u);
  // Without the limit it would travel further.
  shape.num_groups = shape.top_groups = 1;
  Destinations const free = destinations(comm_, shape);
  EXPECT_TRUE(free.all_there);
  if (size_ >= 4) {
    EXPECT_GT(free.most, 2u);
  }
}

TEST_P(ExpertExchangeTest, NoGroupIsOneRank) {
  Turn const turn{1, 8, 3, 7};
  ExpertExchange const alone(nullptr, 1, 8, 3);
  Rows routed = routed_rows(turn, 0);
  ASSERT_FALSE(routed.rows.empty());
  Route const route = alone.route(routed.offsets, turn.samples(0));
  EXPECT_EQ(std::vector(route.offsets().begin(), route.offsets().end()), routed.offsets);
  EXPECT_EQ(route.rows_to(0), route.received_rows());
  EXPECT_EQ(route.workspace_rows(), 0);
  Rows received, back;
  received.rows.resize(routed.rows.size());
  back.rows.resize(routed.rows.size());
  alone.dispatch<std::int32_t>(at_, route, received.view(), routed.view(), {});
  EXPECT_EQ(received.rows, routed.rows);
  alone.collect<std::int32_t>(at_, route, back.view(), received.view(), {});
  EXPECT_EQ(back.rows, routed.rows);
}

TEST_P(ExpertExchangeTest, BrokenContractsAreSeen) {
  EXPECT_THROW(ExpertExchange(&comm_, size_ + 1, 4, 1), std::logic_error);
  EXPECT_THROW(ExpertExchange(&comm_, 0, 4, 1), std::logic_error);
  EXPECT_THROW(ExpertExchange(&comm_, 1, 0, 1), std::logic_error);
  EXPECT_THROW(ExpertExchange(&comm_, 1, 4, -1), std::logic_error);
  ExpertExchange const exchange(&comm_, 1, 2, 2);
  EXPECT_THROW(exchange.route(std::vector<std::int64_t>(7), 3), std::logic_error);
  EXPECT_THROW(exchange.route(std::vector<std::int64_t>{0}, -1), std::logic_error);
  EXPECT_THROW(exchange.route(std::vector<std::int64_t>(4), 1), std::logic_error);
  EXPECT_THROW(exchange.route(std::vector<std::int64_t>{1, 1, 1}, 1), std::logic_error);
  EXPECT_THROW(exchange.route(std::vector<std::int64_t>{0, 2, 1}, 1), std::logic_error);

  std::vector<std::int64_t> const offsets{0, 1, 2};
  Route const route = exchange.route(offsets, 1);
  EXPECT_ANY_THROW(route.rows_to(size_));
  EXPECT_ANY_THROW(route.rows_from(-1));
  std::vector<int> rows(200);
  auto const view = [&](std::int64_t count, std::int64_t cols, std::int64_t stride) {
    return Matrix<int>(rows.data(), count, cols, stride);
  };
  std::int64_t const in = route.received_rows();
  auto const dispatch = [&](Matrix<int> received, Matrix<int> routed, std::size_t workspace) {
    exchange.dispatch<int>(at_, route, received, routed, std::span(rows).subspan(0, workspace));
  };
  EXPECT_THROW(dispatch(view(in + 1, 2, 2), view(2, 2, 2), 100), std::logic_error);
  EXPECT_THROW(dispatch(view(in, 2, 2), view(3, 2, 2), 100), std::logic_error);
  EXPECT_THROW(dispatch(view(in, 2, 2), view(2, 3, 3), 100), std::logic_error);
  EXPECT_THROW(dispatch(view(in, 2, 4), view(2, 2, 2), 100), std::logic_error);
  EXPECT_THROW(exchange.collect<int>(at_, route, view(3, 2, 2), view(in, 2, 2), rows), std::logic_error);
  if (route.workspace_rows() > 0) {
    EXPECT_THROW(dispatch(view(in, 2, 2), view(2, 2, 2), 0), std::logic_error);
  }
}

TEST_P(ExpertExchangeTest, TensorRanksOfASourceMustAgreeOnItsSamples) {
  if (size_ % 2 != 0) GTEST_SKIP() << "needs two tensor ranks";
  ExpertExchange const exchange(&comm_, 2, 1, 2);
  int const samples = rank_ == 0 ? 2 : 1;
  EXPECT_THROW(exchange.route(std::vector<std::int64_t>(static_cast<std::size_t>(samples) + 1), samples),
               std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
