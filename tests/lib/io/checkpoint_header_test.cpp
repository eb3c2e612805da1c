#include "lib/io/checkpoint_header.h"

#include <gtest/gtest.h>

#include "lib/io/piece_sums.h"
#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

class Header : public testing::Test {
 protected:
  /// A complete file without contents in its flat datasets.
  std::filesystem::path write(CheckpointHeader const& header) {
    auto const path = folder_.path() / "x.h5";
    auto file = hdf5::create(path);
    write_checkpoint_header(file, header);
    complete_checkpoint(file, header, sums_of(header));
    hdf5::close(std::move(file));
    return path;
  }
  static CheckpointSums sums_of(CheckpointHeader const& header) {
    CheckpointSums sums;
    for (auto const& [name, elements] : header.flat) sums[name].assign(num_pieces(elements), 42);
    return sums;
  }
  static CheckpointHeader sample() {
    auto header = sample_header(12, 8192);
    header.flat = {{"master", 8192}, {"adam_m", 8192}};
    return header;
  }
  static CheckpointHeader read(std::filesystem::path const& path) {
    return read_checkpoint_header(hdf5::open_read_only(path));
  }

  SharedFolder folder_{"header"};
};

TEST_F(Header, ReadsBackAsWritten) {
  auto const header = sample();
  CheckpointSums sums;
  EXPECT_EQ(read_checkpoint_header(hdf5::open_read_only(write(header)), &sums), header);
  EXPECT_EQ(sums, sums_of(header));
  auto other = header;
  other.state["layers.1.bias"][0] = 0.25f;
  EXPECT_NE(read(write(other)), header);
}

TEST_F(Header, MayBeNearlyEmptyOrLarge) {
  CheckpointHeader const empty;
  EXPECT_EQ(read(write(empty)), empty);
  auto large = sample();
  large.config_json.assign(300000, ' ');
  large.settings_ini.assign(100000, '#');
  large.tokenizer.assign(3000000, 7);
  for (std::int64_t i = 0; i < 3000; ++i) {
    large.index.push_back({std::to_string(i), {1}, "float32", {{6 + i, 0, 0, 1, 1}}});
  }
  for (int i = 0; i < 100; ++i) large.state[std::to_string(i)].assign(256, 0.5f);
  EXPECT_EQ(read(write(large)), large);
}

TEST_F(Header, OfAFileThatWasNeverCompletedIsRefused) {
  auto const path = folder_.path() / "x.h5";
  auto file = hdf5::create(path);
  write_checkpoint_header(file, sample());
  hdf5::close(std::move(file));
  EXPECT_CONTAINS(message_of([&] { read(path); }), "x.h5' is not complete (its writer was stopped before the end)");
}

TEST_F(Header, OfAForeignFileIsRefused) {
  auto const path = folder_.path() / "x.h5";
  hdf5::close(hdf5::create(path));
  EXPECT_CONTAINS(message_of([&] { read(path); }), "x.h5' is not a checkpoint");
  {
    auto const file = hdf5::create(path);
    hdf5::write_attribute(file.get(), "format", std::string("isotrain shard"));
  }
  EXPECT_CONTAINS(message_of([&] { read(path); }), "x.h5' is not a checkpoint");
}

TEST_F(Header, OfAnotherFormatIsRefused) {
  auto const read_as = [&](std::uint64_t version) {
    auto const path = write(sample());
    {
      auto const file = hdf5::open_read_write(path);
      H5Adelete(file.get(), "format_version");
      hdf5::write_attribute(file.get(), "format_version", version);
    }
    return message_of([&] { read(path); });
  };
  EXPECT_EQ(read_as(2), "no error");
  EXPECT_CONTAINS(read_as(1),
                  "x.h5' has checkpoint format 1, this program reads format 2 (an earlier version wrote it, with the "
                  "weights in another order); read it with that version, or train again");
  EXPECT_CONTAINS(read_as(3),
                  "x.h5' has checkpoint format 3, this program reads format 2 (a later version wrote it); use a newer");
}

TEST_F(Header, WithAnIndexThatCannotBeIsRefused) {
  auto const edit = [&](auto const& change) {
    auto const path = write(sample());
    auto index = sample().index;
    change(index);
    {
      auto const file = hdf5::open_read_write(path);
      H5Ldelete(file.get(), "index.json", H5P_DEFAULT);
      hdf5::write_text(file.get(), "index.json", index_to_json(index));
    }
    return message_of([&] { read(path); });
  };
  EXPECT_EQ(edit([](CheckpointIndex&) {}), "no error");
  EXPECT_CONTAINS(
      edit([](CheckpointIndex& index) { index[1].pieces[0].offset = 4097; }),
      "x.h5' is damaged (a piece of tensor 'b.weight' at offset 4097 lies outside the flat datasets of 8192 "
      "elements); use another");
  EXPECT_CONTAINS(edit([](CheckpointIndex& index) { index[0].pieces[1].first_column = 2; }),
                  "x.h5' is damaged (the pieces of tensor 'a.weight' do not cover it, each element once)");
  EXPECT_CONTAINS(edit([](CheckpointIndex& index) { index[0].pieces[1].offset = 3; }),
                  "x.h5' is damaged (pieces of tensors 'a.weight' and 'a.weight' overlap in the flat datasets)");
  // Good in itself, but not what was written.
  EXPECT_CONTAINS(edit([](CheckpointIndex& index) { index[0].pieces[1].offset = 6; }), "is damaged (its digest is");

  auto outside = sample();
  outside.index[1].pieces[0].offset = 4097;
  EXPECT_THROW(write(outside), std::logic_error);
  auto without_weights = sample();
  without_weights.flat.erase("master");
  EXPECT_THROW(write(without_weights), std::logic_error);
}

TEST_F(Header, WithAnEditedFieldIsRefused) {
  auto const edit = [&](auto const& change) {
    auto const path = write(sample());
    {
      auto const file = hdf5::open_read_write(path);
      change(file.get());
    }
    return message_of([&] { read(path); });
  };
  EXPECT_EQ(edit([](hid_t) {}), "no error");
  EXPECT_CONTAINS(edit([](hid_t file) {
                    H5Adelete(file, "step");
                    hdf5::write_attribute(file, "step", std::uint64_t{13});
                  }),
                  "is damaged (its digest is");
  EXPECT_CONTAINS(edit([](hid_t file) { H5Adelete(file, "seed"); }), "has no attribute 'seed'");
  EXPECT_CONTAINS(edit([](hid_t file) {
                    float const bias[2] = {0.5f, 0.25f};
                    hdf5::write<float>(hdf5::open_dataset<float>(file, "/state/layers.1.bias"), 0, bias);
                  }),
                  "is damaged (its digest is");
  EXPECT_CONTAINS(edit([](hid_t file) {
                    H5Ldelete(file, "index.json", H5P_DEFAULT);
                    hdf5::write_text(file, "index.json", "[{\"name\": \"a\", \"shape\": [1], \"dtype\": \"float32\"}]");
                  }),
                  "index of '");
  EXPECT_CONTAINS(edit([](hid_t file) {
                    H5Ldelete(file, "index.json", H5P_DEFAULT);
                    hdf5::write_text(file, "index.json", "[");
                  }),
                  "index of '");
  EXPECT_CONTAINS(edit([](hid_t file) {
                    H5Ldelete(file, "/flat/adam_m", H5P_DEFAULT);
                    hdf5::create_dataset<float>(file, "/flat/adam_m", 4096);
                  }),
                  "is damaged (its digest is");
  EXPECT_CONTAINS(edit([](hid_t file) { H5Ldelete(file, "/flat/adam_m", H5P_DEFAULT); }), "is damaged (its digest is");
  EXPECT_CONTAINS(edit([](hid_t file) { H5Ldelete(file, "/state", H5P_DEFAULT); }), "cannot open group 'state'");
}

/// Metadata that nothing reads (free space, views, times) may change unseen; what is read may not.
TEST_F(Header, WithAnyByteFlippedIsReadAsWrittenOrRefused) {
  auto const header = sample();
  auto const path = write(header);
  auto const size = std::filesystem::file_size(path);
  int refused = 0;
  int tried = 0;
  for (std::uintmax_t byte = 0; byte < size; byte += 23, ++tried) {
    flip_bit(path, byte);
    try {
      EXPECT_EQ(read(path), header) << "byte " << byte;
    } catch (Error const&) {
      ++refused;
    }
    flip_bit(path, byte);
  }
  EXPECT_GT(refused, 100) << "of " << tried;
}

TEST_F(Header, WithItsEndMissingIsRefused) {
  auto const path = write(sample());
  auto const good = read_bytes(path);
  for (auto const keep : {std::size_t{0}, std::size_t{7}, std::size_t{96}, good.size() / 2, good.size() - 1}) {
    write_bytes(path, good.substr(0, keep));
    EXPECT_CONTAINS(message_of([&] { read(path); }), "cannot open '");
  }
}

}  // namespace
}  // namespace isotrain::io::test
