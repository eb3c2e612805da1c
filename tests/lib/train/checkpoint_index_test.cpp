#include <gtest/gtest.h>

#include "lib/train/resume.h"
#include "tests/lib/tensor/tables.h"

namespace isotrain::test {
namespace {

TEST(CheckpointIndex, NamesEveryPieceOfATable) {
  for (int const slices : {1, 4, 8}) {
    ParameterTable const table(mixed_parameters(), slices);
    auto const index = checkpoint_index(table);
    EXPECT_EQ(io::index_fault(index, static_cast<std::uint64_t>(table.flat_size())), "");
    ASSERT_EQ(index.size(), table.all().size());
    for (std::size_t i = 0; i < index.size(); ++i) {
      auto const& parameter = table.all()[i];
      auto const pieces = table.pieces_of(parameter);
      EXPECT_EQ(index[i].name, parameter.name);
      EXPECT_EQ(index[i].shape, parameter.shape);
      EXPECT_EQ(index[i].size(), parameter.size());
      ASSERT_EQ(index[i].pieces.size(), pieces.size());
      for (std::size_t s = 0; s < pieces.size(); ++s) {
        auto const& p = pieces[s];
        EXPECT_EQ(index[i].pieces[s], (io::CheckpointPiece{p.offset, p.first_row, p.first_column, p.rows, p.columns}));
      }
    }
  }
}

/// By this a checkpoint of another number of slices is told apart.
TEST(CheckpointIndex, DependsOnTheSlices) {
  auto const index = [](int slices) { return checkpoint_index(ParameterTable(mixed_parameters(), slices)); };
  EXPECT_EQ(index(4), index(4));
  EXPECT_NE(index(4), index(2));
  EXPECT_FALSE(io::index_fault(index(4), static_cast<std::uint64_t>(block_elements)).empty());
}

}  // namespace
}  // namespace isotrain::test
