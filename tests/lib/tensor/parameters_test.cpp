#include "lib/tensor/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "lib/base/error.h"
#include "tests/lib/tensor/tables.h"

namespace isotrain::test {
namespace {

ParameterTable mixed(int slices) {
  return {mixed_parameters(), slices};
}

/// How often each element of a parameter is in one of the pieces, by their rectangles.
std::vector<int> cover(Parameter const& parameter, std::span<Piece const> pieces) {
  std::vector<int> times(static_cast<std::size_t>(parameter.size()), 0);
  for (auto const& p : pieces) {
    for (auto row = p.first_row; row < p.first_row + p.rows; ++row) {
      for (auto column = p.first_column; column < p.first_column + p.columns; ++column) {
        ++times.at(static_cast<std::size_t>(row * parameter.columns() + column));
      }
    }
  }
  return times;
}

bool is_once(std::vector<int> const& times) {
  return std::ranges::all_of(times, [](int n) { return n == 1; });
}

struct Rectangle {
  std::int64_t first_row, first_column, rows, columns;
  bool operator==(Rectangle const&) const = default;
};

std::vector<Rectangle> rectangles(ParameterTable const& table, std::string const& name) {
  std::vector<Rectangle> all;
  for (auto const& p : table.pieces_of(table.find(name))) {
    all.push_back({p.first_row, p.first_column, p.rows, p.columns});
  }
  return all;
}

TEST(Parameter, BelongsToARegion) {
  EXPECT_EQ((Parameter{.name = "a", .shape = {2, 2}, .cut = Cut::columns}.region()), Region::sliced);
  EXPECT_EQ((Parameter{.name = "a", .shape = {2, 2}, .cut = Cut::rows}.region()), Region::sliced);
  EXPECT_EQ((Parameter{.name = "a", .shape = {2, 2}}.region()), Region::replicated);
  EXPECT_EQ((Parameter{.name = "a", .shape = {2, 2}, .cut = Cut::rows, .expert = 0}.region()), Region::experts);
  EXPECT_EQ((Parameter{.name = "a", .shape = {2}, .segment = Segment::fp32}.region()), Region::fp32);
}

TEST(ParameterTable, CutsIntoEqualSlicesAndARest) {
  auto const table = mixed(4);
  EXPECT_EQ(rectangles(table, "embedding"),
            (std::vector<Rectangle>{{0, 0, 3, 3}, {3, 0, 3, 3}, {6, 0, 3, 3}, {9, 0, 2, 3}}));
  EXPECT_EQ(rectangles(table, "wide"),
            (std::vector<Rectangle>{{0, 0, 500, 3}, {0, 3, 500, 3}, {0, 6, 500, 3}, {0, 9, 500, 2}}));
  EXPECT_EQ(rectangles(table, "expert.1.up"),
            (std::vector<Rectangle>{{0, 0, 3, 2}, {3, 0, 3, 2}, {6, 0, 3, 2}, {9, 0, 0, 2}}))
      << "the last slice is empty";
  EXPECT_EQ(rectangles(table, "expert.0.down"),
            (std::vector<Rectangle>{{0, 0, 2, 3}, {0, 3, 2, 3}, {0, 6, 2, 3}, {0, 9, 2, 0}}));
  EXPECT_EQ(rectangles(table, "whole"), (std::vector<Rectangle>{{0, 0, 3, 5}}));
  EXPECT_EQ(rectangles(table, "gain"), (std::vector<Rectangle>{{0, 0, 5, 1}}));
}

TEST(ParameterTable, CoversEachParameterOnce) {
  for (int const slices : {1, 2, 3, 4, 8, 16}) {
    auto const table = mixed(slices);
    for (auto const& parameter : table.all()) {
      auto const pieces = table.pieces_of(parameter);
      EXPECT_EQ(pieces.size(), parameter.cut == Cut::none ? 1u : static_cast<std::size_t>(slices));
      EXPECT_TRUE(is_once(cover(parameter, pieces))) << parameter.name << " in " << slices << " slices";
      for (std::size_t s = 0; s < pieces.size(); ++s) {
        EXPECT_EQ(pieces[s].slice, static_cast<int>(s));
        EXPECT_EQ(&table.parameter(pieces[s]), &parameter);
      }
    }
    EXPECT_EQ(table.slices(), slices);
  }
  auto const table = mixed(4);
  auto const& wide = table.find("wide");
  EXPECT_FALSE(is_once(cover(wide, table.pieces_of(wide).first(3))));
}

TEST(ParameterTable, LiesByRegionAndInTheOrderOfTheModel) {
  std::map<int, std::int64_t> sizes;
  for (int const slices : {1, 4, 8}) {
    auto const table = mixed(slices);
    std::vector<std::string> names;
    for (auto const& parameter : table.all()) names.push_back(parameter.name);
    EXPECT_EQ(names, mixed_order);
    std::int64_t end = 0;
    for (auto const& piece : table.pieces()) {
      EXPECT_EQ(piece.offset, end) << "one piece after the other, in the order of parameters and slices";
      EXPECT_EQ(piece.offset % block_elements, 0);
      EXPECT_GE(piece.end() - piece.offset, piece.size());
      EXPECT_LT(piece.end() - piece.offset - piece.size(), block_elements);
      end = piece.end();
    }
    EXPECT_EQ(table.flat_size(), end);
    EXPECT_EQ(table.num_blocks() * block_elements, end);
    EXPECT_EQ(table.matrix_size(), table.pieces_of(table.find("gain"))[0].offset);
    EXPECT_EQ(table.num_parameters(), 5 + 7700 + 15 + 18 + 18 + 5500 + 6000 + 8192 + 33);
    sizes[slices] = table.num_blocks();
  }
  // head, wide, embedding, two experts, whole, tall, gain, router.
  EXPECT_EQ(sizes[1], 2 + 2 + 1 + 2 + 1 + 2 + 1 + 2);
  EXPECT_EQ(sizes[4], 4 + 4 + 4 + 2 * 3 + 1 + 2 + 1 + 2) << "an empty slice takes no block";
  EXPECT_EQ(sizes[8], 6 + 6 + 6 + 2 * 5 + 1 + 2 + 1 + 2) << "11 in 8 slices are 6 of at most 2, 9 are 5";
}

TEST(ParameterTable, FindsThePieceAtAnOffset) {
  auto const table = mixed(4);
  for (auto const& piece : table.pieces()) {
    if (piece.size() == 0) continue;
    EXPECT_EQ(&table.at(piece.offset), &piece);
    EXPECT_EQ(&table.at(piece.offset + piece.size() - 1), &piece);
    EXPECT_EQ(&table.at(piece.end() - 1), &piece) << "the gap belongs to the piece before it";
  }
  EXPECT_EQ(table.parameter(table.at(0)).name, "head");
  EXPECT_EQ(table.parameter(table.at(table.flat_size() - 1)).name, "router");
}

TEST(ParameterTable, WithAnEmptySliceFindsThePieceThatOwnsTheElement) {
  ParameterTable const table(
      {{.name = "a", .shape = {9, 2}, .cut = Cut::rows}, {.name = "b", .shape = {2, 5}, .cut = Cut::columns}}, 4);
  for (std::int64_t offset = 0; offset < table.flat_size(); ++offset) {
    auto const& piece = table.at(offset);
    ASSERT_TRUE(piece.offset <= offset && offset < piece.end()) << offset;
    ASSERT_GT(piece.size(), 0) << offset;
  }
}

TEST(ParameterTable, BrokenContractsAreSeen) {
  auto const table = mixed(2);
  EXPECT_THROW(mixed(0), std::logic_error);
  EXPECT_THROW(ParameterTable({{.name = "a", .shape = {1}}, {.name = "a", .shape = {2}}}, 1), std::logic_error);
  EXPECT_THROW(table.at(-1), std::logic_error);
  EXPECT_THROW(table.at(table.flat_size()), std::logic_error);
  EXPECT_THROW(ParameterTable({}, 1).at(0), std::logic_error);
  EXPECT_THROW(table.pieces_of(mixed(2).find("wide")), std::logic_error) << "of another table";
  EXPECT_THROW(table.find("nothing"), Error);
  EXPECT_NO_THROW(table.find("wide"));
}

/// The elements that runs over `range` name, with the flat offset of each.
std::map<std::int64_t, std::int64_t> elements_by_offset(ParameterTable const& table, FlatRange range) {
  std::map<std::int64_t, std::int64_t> elements;
  for (auto const& piece : table.pieces()) {
    std::int64_t last = range.begin - 1;
    for_each_run(table.parameter(piece), piece, range,
                 [&](std::int64_t offset, std::int64_t element, std::int64_t count) {
                   EXPECT_GT(offset, last) << "ascending";
                   EXPECT_GT(count, 0);
                   for (std::int64_t i = 0; i < count; ++i) {
                     EXPECT_TRUE(elements.emplace(offset + i, element + i).second);
                   }
                   last = offset + count - 1;
                 });
  }
  return elements;
}

TEST(ForEachRun, NamesEachElementOfARangeOnce) {
  auto const table = mixed(4);
  std::map<std::int64_t, std::int64_t> expected;  // from the rectangles, element after element
  for (auto const& piece : table.pieces()) {
    auto const& parameter = table.parameter(piece);
    std::int64_t offset = piece.offset;
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      for (std::int64_t column = 0; column < piece.columns; ++column, ++offset) {
        std::int64_t const element = (piece.first_row + row) * parameter.columns() + piece.first_column + column;
        ASSERT_EQ(element_of(parameter, piece, offset), element);
        expected[offset] = element;
      }
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(expected.size()), table.num_parameters());
  EXPECT_EQ(elements_by_offset(table, {0, table.flat_size()}), expected);
  auto const inside = [&](FlatRange range) {
    std::map<std::int64_t, std::int64_t> part;
    for (auto const& [offset, element] : expected) {
      if (range.begin <= offset && offset < range.end) part[offset] = element;
    }
    return part;
  };
  auto const wide = table.pieces_of(table.find("wide"))[1].offset;
  std::vector<FlatRange> const ranges = {
      {0, block_elements},                       // the first slice of "head"
      {wide + 1, wide + 2},                      // inside a row of a slice
      {wide + 2, wide + 1000},                   // from the middle of a row to the middle of another
      {wide + 1499, wide + block_elements + 1},  // the last element, the gap, the first of the next
      {wide + 1500, wide + block_elements},      // a gap
      {wide + 7, wide + 7},                      // nothing
      {wide - 1000, table.flat_size() - 3},      // many pieces
  };
  for (auto const& range : ranges) {
    EXPECT_EQ(elements_by_offset(table, range), inside(range)) << range.begin << " to " << range.end;
  }
  EXPECT_NE(elements_by_offset(table, ranges[2]), inside(ranges[3]));
}

struct Stretch {
  std::int64_t offset, element, count;
  bool operator==(Stretch const&) const = default;
};

std::vector<Stretch> runs(Parameter const& parameter, Piece const& piece, FlatRange range) {
  std::vector<Stretch> all;
  for_each_run(parameter, piece, range, [&](std::int64_t offset, std::int64_t element, std::int64_t count) {
    all.push_back({offset, element, count});
  });
  return all;
}

TEST(ForEachRun, GivesTheLongestRuns) {
  ParameterTable const table({{.name = "columns", .shape = {3, 11}, .cut = Cut::columns},
                              {.name = "rows", .shape = {11, 3}, .cut = Cut::rows},
                              {.name = "whole", .shape = {4, 2}}},
                             4);
  FlatRange const all{0, table.flat_size()};
  auto const& columns = table.find("columns");
  auto const& of_columns = table.pieces_of(columns)[3];
  auto const at = of_columns.offset;
  EXPECT_EQ(runs(columns, of_columns, all), (std::vector<Stretch>{{at, 9, 2}, {at + 2, 20, 2}, {at + 4, 31, 2}}));
  EXPECT_EQ(runs(columns, of_columns, {at + 1, at + 3}), (std::vector<Stretch>{{at + 1, 10, 1}, {at + 2, 20, 1}}));
  auto const& rows = table.find("rows");
  auto const& of_rows = table.pieces_of(rows)[1];
  EXPECT_EQ(runs(rows, of_rows, all), (std::vector<Stretch>{{of_rows.offset, 9, 9}})) << "whole rows are one run";
  EXPECT_EQ(runs(rows, of_rows, {of_rows.offset + 2, of_rows.offset + 7}),
            (std::vector<Stretch>{{of_rows.offset + 2, 11, 5}}));
  auto const& whole = table.find("whole");
  EXPECT_EQ(runs(whole, table.pieces_of(whole)[0], all),
            (std::vector<Stretch>{{table.pieces_of(whole)[0].offset, 0, 8}}));
}

TEST(ForEachRun, OfAnEmptyPieceGivesNothing) {
  ParameterTable const table(
      {{.name = "columns", .shape = {2, 9}, .cut = Cut::columns}, {.name = "rows", .shape = {9, 2}, .cut = Cut::rows}},
      4);
  for (auto const& parameter : table.all()) {
    EXPECT_TRUE(runs(parameter, table.pieces_of(parameter)[3], {0, table.flat_size()}).empty());
    EXPECT_FALSE(runs(parameter, table.pieces_of(parameter)[2], {0, table.flat_size()}).empty());
  }
}

}  // namespace
}  // namespace isotrain::test
