#include "lib/tensor/shard.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/lib/tensor/tables.h"

namespace isotrain::test {
namespace {

constexpr std::int64_t b = block_elements;

/// What tensor rank 1 of 2 holds of 4 slices that also has expert 0 only.
bool of_rank(Parameter const& parameter, Piece const& piece) {
  if (parameter.expert > 0) return false;
  return parameter.cut == Cut::none || piece.slice >= 2;
}

struct ShardTest : testing::Test {
  ParameterTable table{mixed_parameters(), 4};
  Shard whole{table};
  Shard part{table, of_rank};
};

TEST_F(ShardTest, OfAllPiecesIsTheTable) {
  EXPECT_EQ(&whole.table(), &table);
  EXPECT_EQ(whole.flat_size(), table.flat_size());
  EXPECT_EQ(whole.matrix_size(), table.matrix_size());
  ASSERT_EQ(whole.all().size(), table.pieces().size());
  for (std::size_t i = 0; i < table.pieces().size(); ++i) {
    EXPECT_EQ(whole.all()[i].piece, &table.pieces()[i]);
    EXPECT_EQ(whole.all()[i].offset, table.pieces()[i].offset);
    EXPECT_EQ(whole.all()[i].end(), table.pieces()[i].end());
  }
  EXPECT_EQ(whole.global_runs({0, table.flat_size()}), (std::vector<FlatRange>{{0, table.flat_size()}}));
  EXPECT_LT(part.flat_size(), table.flat_size());
}

TEST_F(ShardTest, HoldsWhatThePredicateSaysWithoutGaps) {
  std::size_t held = 0;
  std::int64_t end = 0;
  for (auto const& piece : table.pieces()) {
    if (!of_rank(table.parameter(piece), piece)) continue;
    ASSERT_LT(held, part.all().size());
    EXPECT_EQ(part.all()[held].piece, &piece);
    EXPECT_EQ(part.all()[held].offset, end);
    end += piece.end() - piece.offset;
    EXPECT_EQ(part.all()[held].end(), end);
    ++held;
  }
  EXPECT_EQ(held, part.all().size());
  EXPECT_EQ(part.flat_size(), end);
}

TEST_F(ShardTest, KnowsWhereRegionsLie) {
  // Two slices of "head", "wide" and "embedding"; one of "expert.0.down", whose other one is empty; "whole" and "tall";
  // "gain" and "router".
  EXPECT_EQ(part.region(Region::sliced), (FlatRange{0, 6 * b}));
  EXPECT_EQ(part.region(Region::experts), (FlatRange{6 * b, 7 * b}));
  EXPECT_EQ(part.region(Region::replicated), (FlatRange{7 * b, 10 * b}));
  EXPECT_EQ(part.region(Region::fp32), (FlatRange{10 * b, 13 * b}));
  EXPECT_EQ(part.matrix_size(), 10 * b);
  EXPECT_EQ(part.flat_size(), 13 * b);
}

TEST_F(ShardTest, MayLackRegions) {
  auto const only = [&](Region region) {
    return Shard(table, [region](Parameter const& p, Piece const&) { return p.region() == region; });
  };
  auto const experts = only(Region::experts);
  EXPECT_EQ(experts.region(Region::sliced), (FlatRange{0, 0}));
  EXPECT_EQ(experts.region(Region::experts), (FlatRange{0, 6 * b}));
  EXPECT_EQ(experts.region(Region::replicated), (FlatRange{6 * b, 6 * b}));
  EXPECT_EQ(experts.region(Region::fp32), (FlatRange{6 * b, 6 * b}));
  EXPECT_EQ(experts.matrix_size(), experts.flat_size());
  auto const fp32 = only(Region::fp32);
  EXPECT_EQ(fp32.matrix_size(), 0);
  EXPECT_EQ(fp32.region(Region::fp32), (FlatRange{0, 3 * b}));
  Shard const none(table, [](auto const&, auto const&) { return false; });
  EXPECT_EQ(none.flat_size(), 0);
  EXPECT_EQ(none.region(Region::replicated), (FlatRange{0, 0}));
  EXPECT_TRUE(none.all().empty());
  EXPECT_TRUE(none.global_runs({0, 0}).empty());
}

TEST_F(ShardTest, FindsThePiecesOfAParameter) {
  auto const wide = part.find("wide");
  ASSERT_EQ(wide.size(), 2u);
  EXPECT_EQ(wide[0].piece, &table.pieces_of(table.find("wide"))[2]);
  EXPECT_EQ(wide[1].piece, &table.pieces_of(table.find("wide"))[3]);
  EXPECT_EQ(wide[0].offset, 2 * b);
  EXPECT_EQ(part["wide"].data(), wide.data());
  EXPECT_EQ(whole.find("wide").size(), 4u);
  EXPECT_EQ(part.find("tall").size(), 1u);
  EXPECT_EQ(part.find("expert.0.down").size(), 2u);
  EXPECT_TRUE(part.find("expert.1.up").empty());
  EXPECT_TRUE(part.find("nothing").empty());
}

TEST_F(ShardTest, SaysWhereItsElementsLieInTheTable) {
  auto const offset = [&](std::string const& name, std::size_t slice) {
    return table.pieces_of(table.find(name))[slice].offset;
  };
  // Neighbours in the table are one run; "embedding" is the last before the experts.
  std::vector<FlatRange> const all = {{offset("head", 2), offset("head", 2) + 2 * b},
                                      {offset("wide", 2), offset("wide", 2) + 2 * b},
                                      {offset("embedding", 2), offset("embedding", 2) + 2 * b},
                                      {offset("expert.0.down", 2), table.flat_size()}};
  EXPECT_EQ(part.global_runs({0, part.flat_size()}), all);
  EXPECT_EQ(part.global_runs({b, 2 * b}), (std::vector<FlatRange>{{offset("head", 3), offset("head", 3) + b}}));
  EXPECT_EQ(part.global_runs({b + 5, 2 * b + 7}),
            (std::vector<FlatRange>{{offset("head", 3) + 5, offset("head", 3) + b},
                                    {offset("wide", 2), offset("wide", 2) + 7}}));
  EXPECT_TRUE(part.global_runs({b, b}).empty());

  // Element by element, over every border.
  for (auto const& held : part.all()) {
    for (std::int64_t i : {std::int64_t{0}, std::int64_t{1}, held.end() - held.offset - 1}) {
      if (held.end() == held.offset) continue;
      EXPECT_EQ(part.global_runs({held.offset + i, held.offset + i + 1}),
                (std::vector<FlatRange>{{held.piece->offset + i, held.piece->offset + i + 1}}));
    }
  }
}

TEST_F(ShardTest, BrokenContractsAreSeen) {
  EXPECT_THROW(part["expert.1.up"], std::logic_error);
  EXPECT_THROW(part["nothing"], std::logic_error);
  EXPECT_NO_THROW(whole["expert.1.up"]);
  EXPECT_THROW(part.global_runs({-1, 1}), std::logic_error);
  EXPECT_THROW(part.global_runs({2, 1}), std::logic_error);
  EXPECT_THROW(part.global_runs({0, part.flat_size() + 1}), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
