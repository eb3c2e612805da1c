#include "lib/base/token_split.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace isotrain::test {
namespace {

TEST(TokenSplit, CutsTenPositionsIntoFourSlicesOfThree) {
  TokenSplit const first(10, 4, 2, 0), second(10, 4, 2, 1);
  EXPECT_EQ(first.positions(), (IndexRange{0, 6}));
  EXPECT_EQ(first.positions(1), (IndexRange{6, 10}));
  EXPECT_EQ(second.positions(), (IndexRange{6, 10}));
  EXPECT_EQ(second.rows(), 4);
  EXPECT_EQ(second.num_slices(), 2);
  EXPECT_EQ(second.slices_of(1), (IndexRange{2, 4}));
  EXPECT_EQ(second.slice(0), (IndexRange{0, 3}));
  EXPECT_EQ(second.slice(1), (IndexRange{3, 4}));
}

TEST(TokenSplit, LastSlicesMayBeEmpty) {
  // Runs of 2: 0-2, 2-4, 4-5 and one without positions.
  TokenSplit const last(5, 4, 4, 3);
  EXPECT_EQ(last.positions(2), (IndexRange{4, 5}));
  EXPECT_EQ(last.rows(), 0);
  EXPECT_EQ(last.slice(0), (IndexRange{0, 0}));
}

TEST(TokenSplit, SlicesDoNotDependOnTheRanksAndCoverTheSequence) {
  for (std::int64_t sequence = 1; sequence <= 20; ++sequence) {
    for (int slices = 1; slices <= 12; ++slices) {
      TokenSplit const alone(sequence, slices, 1, 0);
      for (int ranks = 1; ranks <= slices; ++ranks) {
        if (slices % ranks != 0) continue;
        std::int64_t next = 0;
        for (int rank = 0, number = 0; rank < ranks; ++rank) {
          TokenSplit const split(sequence, slices, ranks, rank);
          std::int64_t const first = split.positions().begin;
          EXPECT_EQ(first, next);
          for (int i = 0; i < split.num_slices(); ++i, ++number) {
            IndexRange const slice = split.slice(i);
            EXPECT_EQ((IndexRange{first + slice.begin, first + slice.end}), alone.slice(number));
            EXPECT_EQ(first + slice.begin, next);
            next = first + slice.end;
          }
          EXPECT_EQ(split.positions().end, next);
          EXPECT_EQ(split.rows(), next - first);
        }
        EXPECT_EQ(next, sequence);
      }
    }
  }
}

TEST(TokenSplit, BrokenContractsAreSeen) {
  EXPECT_THROW(TokenSplit(8, 4, 3, 0), std::logic_error);
  EXPECT_THROW(TokenSplit(8, 4, 8, 0), std::logic_error);
  EXPECT_THROW(TokenSplit(8, 4, 2, 2), std::logic_error);
  EXPECT_THROW(TokenSplit(8, 4, 2, -1), std::logic_error);
  EXPECT_THROW(TokenSplit(8, 4, 0, 0), std::logic_error);
  EXPECT_THROW(TokenSplit(0, 4, 2, 0), std::logic_error);
  EXPECT_THROW(TokenSplit(8, 0, 1, 0), std::logic_error);
  EXPECT_THROW(TokenSplit(8, 4, 2, 0).positions(2), std::logic_error);
  EXPECT_THROW(TokenSplit(8, 4, 2, 0).slice(2), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
