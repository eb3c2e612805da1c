// The file does not depend on how many ranks write it nor on who holds what, and any number of ranks can read it.

#include <gtest/gtest.h>

#include "lib/io/checkpoint_folder.h"
#include "lib/io/piece_sums.h"
#include "lib/io/runs.h"
#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

Communicator world() {
  return Communicator::duplicate(MPI_COMM_WORLD);
}

constexpr std::uint64_t blocks = 300;  // more than one piece of 256

TEST(CheckpointLayout, AnyNumberOfRanksWritesTheSameBytesAndReadsThemBack) {
  auto const all = world();
  SharedFolder const folder("layout");
  std::string first;
  for (int writers = 1; writers <= all.size(); ++writers) {
    auto const path = folder.path() / std::to_string(writers) / checkpoint_file_name(7);
    if (auto const group = all.split(all.rank() < writers ? 0 : -1, all.rank())) {
      EXPECT_EQ(write_sample(*group, folder.path() / std::to_string(writers), 7, blocks), path);
    }
    all.barrier();
    for (int readers = 1; readers <= all.size(); ++readers) {
      if (all.rank() >= readers) continue;
      auto const begin = 4096 * blocks * static_cast<std::uint64_t>(all.rank()) / static_cast<std::uint64_t>(readers);
      auto const end = 4096 * blocks * static_cast<std::uint64_t>(all.rank() + 1) / static_cast<std::uint64_t>(readers);
      EXPECT_TRUE(holds_sample(path, 7, begin, end)) << writers << " writers, " << readers << " readers";
    }
    auto const bytes = read_bytes(path);
    if (writers == 1) first = bytes;
    EXPECT_TRUE(bytes == first) << writers << " writers";
    EXPECT_GT(bytes.size(), 3 * 4 * 4096 * blocks);
  }
}

TEST(CheckpointLayout, ComparisonsSeeOtherContents) {
  auto const all = world();
  SharedFolder const folder("control");
  auto const path = write_sample(all, folder.path(), 7, blocks);
  EXPECT_FALSE(holds_sample(path, 8, 0, 4096));
  auto const other = write_sample(all, folder.path(), 8, blocks);
  EXPECT_FALSE(read_bytes(path) == read_bytes(other));
}

TEST(CheckpointLayout, RangesMayBeUnevenAndEmpty) {
  auto const all = world();
  SharedFolder const folder("uneven");
  write_sample(all, folder.path() / "even", 1, blocks);
  // One rank holds all; first, middle or last, so that empty ranges come at every place.
  for (int owner = 0; owner < all.size(); ++owner) {
    auto const path = write_sample(all, folder.path() / std::to_string(owner), 1, blocks,
                                   [&](int rank) { return rank <= owner ? 0 : blocks; }, {});
    EXPECT_TRUE(read_bytes(path) == read_bytes(folder.path() / "even" / checkpoint_file_name(1)));
  }
  // 1, 2, 4, ... blocks, the last rank the rest.
  auto const path =
      write_sample(all, folder.path() / "powers", 1, blocks,
                   [&](int rank) { return rank == all.size() ? blocks : (std::uint64_t{1} << rank) - 1; }, {});
  EXPECT_TRUE(read_bytes(path) == read_bytes(folder.path() / "even" / checkpoint_file_name(1)));
}

TEST(CheckpointLayout, RangesMayLieInAnyOrderOfRanks) {
  auto const all = world();
  SharedFolder const folder("reversed");
  write_sample(all, folder.path() / "even", 1, 40);
  auto const n = static_cast<std::uint64_t>(all.size());
  auto const r = n - 1 - static_cast<std::uint64_t>(all.rank());
  Sample const sample(1, 40 * 4096, {block_run(40 * r / n, 40 * (r + 1) / n)});
  auto const path = write_checkpoint(all, folder.path() / "reversed", sample.header, sample.flat);
  EXPECT_TRUE(read_bytes(path) == read_bytes(folder.path() / "even" / checkpoint_file_name(1)));
}

/// Block b is of rank owner(b), for ranks below `ranks`; each rank's list has a run for every block.
std::vector<FlatRange> runs_of(int rank, auto const& owner) {
  std::vector<FlatRange> runs;
  for (std::uint64_t b = 0; b < blocks; ++b)
    if (owner(b) == rank) runs.push_back(block_run(b, b + 1));
  return runs;
}

TEST(CheckpointLayout, ARankMayHoldAnyNumberOfRuns) {
  auto const all = world();
  SharedFolder const folder("runs");
  auto const expected = read_bytes(write_sample(all, folder.path() / "even", 1, blocks));
  int const ranks = all.size();
  auto const dealt = [&](std::uint64_t b) { return static_cast<int>(b) % ranks; };
  // Runs of 7 blocks, the ranks taking turns from the last; the first rank has none if there are others.
  auto const without_first = [&](std::uint64_t b) {
    return ranks == 1 ? 0 : ranks - 1 - static_cast<int>(b / 7) % (ranks - 1);
  };
  // Rank 0 has every third block, the others contiguous shares of what is left.
  auto const mixed = [&](std::uint64_t b) {
    return b % 3 == 0 || ranks == 1 ? 0 : 1 + static_cast<int>(b) * (ranks - 1) / static_cast<int>(blocks);
  };
  int number = 0;
  auto const check = [&](auto const& owner) {
    auto const runs = runs_of(all.rank(), owner);
    for (int const threads : {1, 2}) {
      Sample const sample(1, 4096 * blocks, runs);
      CheckpointOptions const options{.transfer_elements = 3 * 4096, .threads = threads};
      auto const path =
          write_checkpoint(all, folder.path() / std::to_string(number++), sample.header, sample.flat, options);
      EXPECT_TRUE(read_bytes(path) == expected);
      CheckpointReader const reader(path);
      for (std::size_t i = 0; i < datasets.size(); ++i) {
        std::vector<float> found(sample.values[i].size());
        reader.read(datasets[i], runs, found);
        EXPECT_TRUE(found == sample.values[i]) << datasets[i];
      }
    }
  };
  check(dealt);
  check(without_first);
  check(mixed);
}

TEST(CheckpointLayout, RunsOfAnyKindAreReadInTurn) {
  auto const all = world();
  SharedFolder const folder("read");
  auto const path = write_sample(all, folder.path(), 1, blocks);
  CheckpointReader const reader(path);
  auto const piece = static_cast<std::int64_t>(sum_piece_elements);
  auto const total = static_cast<std::int64_t>(4096 * blocks);
  for (auto const& runs : std::vector<std::vector<FlatRange>>{
           {},
           {{5, 5}},
           {{0, total}},
           {{0, 100}, {100, piece}, {piece, total}},                   // adjoin: whole pieces
           {{1, 2}, {3, 3}, {7, 9}, {piece - 1, piece + 1}},           // small ones, over the border of pieces
           {{0, piece}, {piece + 4096, total}},                        // whole, then a part
           {{4096, 8192}, {piece + 1, piece + 2}, {total - 1, total}}  // the last piece is short
       }) {
    auto const wanted = [&](std::string const& dataset) {
      std::vector<float> values;
      for (auto const& run : runs)
        for (auto i = run.begin; i < run.end; ++i) values.push_back(element(dataset, 1, static_cast<std::uint64_t>(i)));
      return values;
    };
    std::vector<float> found(wanted("adam_m").size());
    reader.read("adam_m", runs, found);
    EXPECT_TRUE(found == wanted("adam_m"));
    EXPECT_TRUE(found.empty() || found != wanted("adam_v"));
  }
  std::vector<float> two(2);
  EXPECT_CONTAINS(message_of([&] {
                    reader.read("master", {{0, 1}, {total, total + 1}}, two);
                  }),
                  "has no elements [1228800, 1228801) of 'master' (it has 1228800)");
  EXPECT_THROW(reader.read("master", {{1, 2}, {0, 1}}, two), std::logic_error);
  EXPECT_THROW(reader.read("master", {{1, 2}}, two), std::logic_error);
}

/// Bytes that this process has asked the system to read so far.
std::uint64_t bytes_read() {
  std::ifstream in("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  in >> key >> value;
  EXPECT_EQ(key, "rchar:");
  return value;
}

TEST(CheckpointLayout, APieceIsReadOnceForAllRunsInIt) {
  auto const all = world();
  SharedFolder const folder("once");
  CheckpointReader const reader(write_sample(all, folder.path(), 1, blocks));
  auto const runs = runs_of(0, [](std::uint64_t b) { return static_cast<int>(b % 2); });
  std::vector<float> out(io::elements(runs));
  auto const before = bytes_read();
  reader.read("master", runs, out);
  auto const together = bytes_read() - before;
  EXPECT_GE(together, 4 * 4096 * blocks);
  EXPECT_LT(together, 4 * 4096 * blocks + 100000);
  // Negative control: one by one.
  for (std::uint64_t b = 0; b < 20; b += 2) reader.read("master", 4096 * b, std::span(out).first(4096));
  EXPECT_GT(bytes_read() - before - together, 10 * 4 * sum_piece_elements);
}

TEST(CheckpointLayout, TheSizeOfTransfersAndTheThreadsDoNotMatter) {
  auto const all = world();
  SharedFolder const folder("transfers");
  auto const path = write_sample(all, folder.path() / "default", 1, blocks);
  auto const expected = read_bytes(path);
  for (auto const& options : {CheckpointOptions{1, std::uint64_t{1} << 28, 1}, CheckpointOptions{1, 3 * 4096, 1},
                              CheckpointOptions{1, 3 * 4096, 2}}) {
    EXPECT_TRUE(read_bytes(write_sample(all, folder.path() / "other", 1, blocks, options)) == expected);
    all.barrier();
  }
}

TEST(CheckpointLayout, ADatasetMayBeEmptyOrEndInTheMiddleOfABlock) {
  auto const all = world();
  SharedFolder const folder("odd");
  bool const last = all.rank() == all.size() - 1;
  auto const odd = elements("master", 1, 0, 5000);
  // The last rank holds both: a run of one block, and the rest, which adjoins.
  std::vector<FlatRange> const runs = {{0, 4096}, {4096, 5000}};
  std::vector<FlatRuns> const flat = {last ? FlatRuns{"master", 5000, runs, odd} : FlatRuns{"master", 5000, {}, {}},
                                      {"nothing", 0, {}, {}}};
  auto const path = write_checkpoint(all, folder.path(), sample_header(1, 5000), flat);
  CheckpointReader const reader(path);
  std::vector<float> found(1000);
  reader.read("master", 4000, found);
  EXPECT_EQ(found, elements("master", 1, 4000, 5000));
  reader.read("nothing", 0, {});
  EXPECT_TRUE(reader.find_damage().empty());
}

/// Every rank writes `flat` and says whether it saw a broken contract; all must say the same.
bool refused(Communicator const& comm, std::filesystem::path const& folder, std::vector<FlatRuns> const& flat) {
  bool thrown = false;
  try {
    write_checkpoint(comm, folder, sample_header(1, 1), flat);
  } catch (std::logic_error const&) {
    thrown = true;
  }
  EXPECT_EQ(comm.any(thrown), comm.all(thrown));
  return thrown;
}

TEST(CheckpointLayout, RunsThatDoNotCoverTheDatasetOnceAreABrokenContractOfAllRanks) {
  auto const all = world();
  SharedFolder const folder("contract");
  std::vector<float> const room(4 * 4096);
  auto const n = static_cast<std::uint64_t>(all.size());
  auto const r = static_cast<std::uint64_t>(all.rank());
  std::uint64_t const total = 4096 * 2 * n;
  // Each rank has block r and block n + r; then one of them errs.
  auto const mine = [&](std::vector<FlatRange> const& runs) {
    return std::vector<FlatRuns>{{"master", total, runs, std::span(room).first(io::elements(runs))}};
  };
  std::vector<FlatRange> const good = {block_run(r, r + 1), block_run(n + r, n + r + 1)};
  EXPECT_FALSE(refused(all, folder.path(), mine(good)));
  bool const first = all.rank() == 0;
  auto const with = [&](std::vector<FlatRange> const& runs) {
    return refused(all, folder.path(), first ? mine(runs) : mine(good));
  };
  EXPECT_TRUE(with({}));
  EXPECT_TRUE(with({good[0]}));
  EXPECT_TRUE(with({good[1]}));
  EXPECT_TRUE(with({good[1], good[0]}));                                // not ascending
  EXPECT_TRUE(with({good[0], good[0], good[1]}));                       // twice on a rank
  EXPECT_TRUE(with({good[0], good[1], block_run(2 * n - 1, 2 * n)}));   // twice, on this rank or another
  EXPECT_TRUE(with({good[0], good[1], block_run(2 * n, 2 * n + 1)}));   // beyond the end
  EXPECT_TRUE(with({good[0], {good[1].end, good[1].begin}, good[1]}));  // ends before it begins
  // The data are not those of the runs; another size, name or number of datasets on one rank.
  auto wrong = mine(good);
  if (first) wrong[0].data = std::span(room).first(3 * 4096);
  EXPECT_TRUE(refused(all, folder.path(), wrong));
  wrong = mine(good);
  wrong[0].total = 4096 * (2 * n + 1);
  EXPECT_TRUE(refused(all, folder.path(), wrong));
  if (n == 1) return;
  EXPECT_TRUE(with({{0, 4097}, {good[1].begin + 1, good[1].end}}));  // borders inside a block
  wrong = mine(good);
  if (first) wrong[0].total += 4096;
  EXPECT_TRUE(refused(all, folder.path(), wrong));
  wrong = mine(good);
  if (first) wrong[0].dataset = "adam_m";
  EXPECT_TRUE(refused(all, folder.path(), wrong));
  wrong = mine(good);
  if (first) wrong.push_back({"adam_m", 0, {}, {}});
  EXPECT_TRUE(refused(all, folder.path(), wrong));
}

TEST(CheckpointLayout, TensorsCanBeReadByNameInTheirOwnShape) {
  auto const all = world();
  SharedFolder const folder("views");
  auto const path = write_sample(all, folder.path(), 3, 4);
  std::lock_guard const lock(hdf5_mutex());
  auto const file = hdf5::open_read_only(path);
  hdf5::Dataset const view(H5Dopen2(file.get(), "/tensors/a.weight", H5P_DEFAULT));
  ASSERT_TRUE(view);
  hdf5::Dataspace const space(H5Dget_space(view.get()));
  hsize_t shape[2] = {};
  ASSERT_EQ(H5Sget_simple_extent_dims(space.get(), shape, nullptr), 2);
  EXPECT_EQ(shape[0], 2u);
  EXPECT_EQ(shape[1], 3u);
  std::vector<float> found(6);
  ASSERT_GE(H5Dread(view.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found.data()), 0);
  auto const flat = elements("master", 3, 0, 6);  // column after column
  EXPECT_EQ(found, (std::vector{flat[0], flat[2], flat[4], flat[1], flat[3], flat[5]}));
  std::vector<float> block(4096);
  hdf5::read<float>(hdf5::open_dataset<float>(file.get(), "/tensors/b.weight"), 0, block);
  EXPECT_EQ(block, elements("master", 3, 4096, 8192));
}

}  // namespace
}  // namespace isotrain::io::test
