#include "lib/comm/mesh.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace isotrain::test {
namespace {

/// All degrees that multiply to `ranks`.
std::vector<Degrees> all_degrees(int ranks) {
  std::vector<Degrees> all;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    for (int pipeline = 1; pipeline <= ranks / tensor; ++pipeline) {
      for (int expert = 1; expert <= ranks; ++expert) {
        int const data = ranks / tensor / pipeline;
        if (tensor * pipeline * data == ranks && data % expert == 0) all.push_back({tensor, pipeline, data, expert});
      }
    }
  }
  return all;
}

/// World ranks of a group, by rank in it, as the group itself says.
std::vector<int> members(Communicator const& group, Communicator const& world) {
  return group.all_gather(world.rank());
}

/// The same worked out from the coordinates of every rank: those that `same` accepts, each at its place.
template <class Same, class Place>
std::vector<int> expected(Degrees const& degrees, Same same, Place place) {
  std::vector<std::pair<int, int>> found;
  for (int rank = 0; rank < degrees.ranks(); ++rank) {
    auto const at = coordinates(degrees, WorldRank{rank});
    if (same(at)) found.emplace_back(place(at), rank);
  }
  std::vector<int> ranks(found.size(), -1);
  for (auto const& [at, rank] : found) ranks.at(static_cast<std::size_t>(at)) = rank;
  return ranks;
}

TEST(Mesh, GroupsAreThoseOfTheirAxis) {
  Communicator const world = Communicator::duplicate(MPI_COMM_WORLD);
  auto const cases = all_degrees(world.size());
  ASSERT_GE(cases.size(), static_cast<std::size_t>(world.size()));
  for (Degrees const& d : cases) {
    Mesh const mesh(world, d);
    auto const me = mesh.coordinates();
    EXPECT_EQ(me, coordinates(d, WorldRank{world.rank()}));
    EXPECT_EQ(mesh.degrees(), d);
    EXPECT_EQ(&mesh.world(), &world);
    using At = MeshCoordinates const&;
    EXPECT_EQ(members(mesh.tensor(), world),
              expected(
                  d, [&](At at) { return at.data == me.data && at.pipeline == me.pipeline; },
                  [](At at) { return at.tensor; }));
    EXPECT_EQ(members(mesh.data(), world),
              expected(
                  d, [&](At at) { return at.tensor == me.tensor && at.pipeline == me.pipeline; },
                  [](At at) { return at.data; }));
    EXPECT_EQ(
        members(mesh.pipeline(), world),
        expected(
            d, [&](At at) { return at.tensor == me.tensor && at.data == me.data; }, [](At at) { return at.pipeline; }));
    EXPECT_EQ(members(mesh.expert(), world),
              expected(
                  d, [&](At at) { return at.pipeline == me.pipeline && at.expert_data == me.expert_data; },
                  [&](At at) { return at.expert * d.tensor + at.tensor; }));
    EXPECT_EQ(
        members(mesh.expert_data(), world),
        expected(
            d, [&](At at) { return at.pipeline == me.pipeline && at.tensor == me.tensor && at.expert == me.expert; },
            [](At at) { return at.expert_data; }));
    EXPECT_EQ(members(mesh.stage(), world), expected(
                                                d, [&](At at) { return at.pipeline == me.pipeline; },
                                                [&](At at) { return at.tensor * d.data + at.data; }));
  }
}

TEST(Mesh, ComparesWhatItsGroupsDid) {
  Communicator const world = Communicator::duplicate(MPI_COMM_WORLD);
  Mesh const mesh(world, {.data = world.size()});
  mesh.data().barrier();
  EXPECT_NO_THROW(mesh.check_signatures());
  if (world.size() == 1) return;
  {
    NamedOperations const name(world.rank() == 0 ? "losses" : "gradients");
    mesh.stage().barrier();
  }
  EXPECT_THROW(mesh.check_signatures(), Error);
}

TEST(Mesh, GroupsDoNotMeet) {
  Communicator const world = Communicator::duplicate(MPI_COMM_WORLD);
  Mesh const mesh(world, {.data = world.size()});
  int const other = (world.rank() + 1) % world.size();
  int const from = (world.rank() + world.size() - 1) % world.size();
  std::vector<int> const one{1}, two{2};
  std::vector<int> first(1), second(1);
  Messages on_data(mesh.data()), on_expert_data(mesh.expert_data());
  on_data.receive(std::span(first), from);
  on_expert_data.receive(std::span(second), from);
  on_expert_data.send(std::span(two), other);
  on_data.send(std::span(one), other);
  on_data.wait();
  on_expert_data.wait();
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, two);
}

TEST(Mesh, RefusesDegreesThatDoNotFit) {
  Communicator const world = Communicator::duplicate(MPI_COMM_WORLD);
  EXPECT_THROW(Mesh(world, {.tensor = world.size() + 1}), std::logic_error);
  EXPECT_THROW(Mesh(world, {.data = world.size(), .expert = world.size() + 1}), std::logic_error);
}

TEST(MeshTable, SaysWhoIsWhere) {
  std::vector<std::string> const hosts{"a", "a", "a", "a", "node12", "node12", "node12", "node12"};
  EXPECT_EQ(mesh_table({.tensor = 2, .pipeline = 2, .data = 2, .expert = 2}, hosts),
            "  rank  host    stage  data  expert  tensor\n"
            "     0  a           0     0       0       0\n"
            "     1  a           0     0       0       1\n"
            "     2  a           0     1       1       0\n"
            "     3  a           0     1       1       1\n"
            "     4  node12      1     0       0       0\n"
            "     5  node12      1     0       0       1\n"
            "     6  node12      1     1       1       0\n"
            "     7  node12      1     1       1       1\n");
}

TEST(MeshTable, IsShortForManyRanks) {
  std::string const table = mesh_table({.tensor = 4, .data = 250}, std::vector<std::string>(1000, "n"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 17);
  EXPECT_NE(table.find("\n    11  n"), std::string::npos) << table;
  EXPECT_NE(table.find("\n   ...  985 more\n   997  n"), std::string::npos) << table;
  EXPECT_NE(table.find("\n   999  n             0   249       0       3\n"), std::string::npos) << table;
  EXPECT_THROW(mesh_table({.tensor = 2}, std::vector<std::string>(1)), std::logic_error);
}

}  // namespace
}  // namespace isotrain::test
