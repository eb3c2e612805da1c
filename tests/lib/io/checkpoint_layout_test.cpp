// The file does not depend on how many ranks write it nor on who holds what, and any number of ranks can read it.

#include <gtest/gtest.h>

#include "lib/io/checkpoint_folder.h"
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
  auto const begin = 40 * r / n * 4096;
  auto const end = 40 * (r + 1) / n * 4096;
  Sample const sample(1, 40 * 4096, begin, end);
  auto const path = write_checkpoint(all, folder.path() / "reversed", sample.header, sample.spans);
  EXPECT_TRUE(read_bytes(path) == read_bytes(folder.path() / "even" / checkpoint_file_name(1)));
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
  std::vector<FlatSpan> const spans = {{"master", 5000, 0, last ? std::span(odd) : std::span<float const>()},
                                       {"nothing", 0, 0, {}}};
  auto const path = write_checkpoint(all, folder.path(), sample_header(1, 5000), spans);
  CheckpointReader const reader(path);
  std::vector<float> found(1000);
  reader.read("master", 4000, found);
  EXPECT_EQ(found, elements("master", 1, 4000, 5000));
  reader.read("nothing", 0, {});
  EXPECT_TRUE(reader.find_damage().empty());
}

TEST(CheckpointLayout, RangesThatDoNotCoverTheDatasetAreABrokenContract) {
  auto const all = world();
  SharedFolder const folder("contract");
  std::vector<float> const block(4096);
  auto const n = static_cast<std::uint64_t>(all.size());
  auto const begin = 4096 * static_cast<std::uint64_t>(all.rank());
  auto const write = [&](FlatSpan const& span) {
    write_checkpoint(all, folder.path(), sample_header(1, 1), std::span(&span, 1));
  };
  write({"master", 4096 * n, begin, block});
  EXPECT_THROW(write({"master", 4096 * (n + 1), begin, block}), std::logic_error);
  EXPECT_THROW(write({"master", 4096 * (n + 1), begin + 4096, block}), std::logic_error);
  EXPECT_THROW(write({"master", 4096 * (n + static_cast<std::uint64_t>(all.rank() + 1)), begin, block}),
               std::logic_error);
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
  EXPECT_EQ(found, elements("master", 3, 0, 6));
  std::vector<float> block(4096);
  hdf5::read<float>(hdf5::open_dataset<float>(file.get(), "/tensors/b.weight"), 0, block);
  EXPECT_EQ(block, elements("master", 3, 4096, 8192));
}

}  // namespace
}  // namespace isotrain::io::test
