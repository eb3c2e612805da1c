#include "lib/io/checkpoint_index.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/lib/io/checkpoints.h"

namespace isotrain::io::test {
namespace {

constexpr std::uint64_t total = 14 * 4096;

/// Four slices each, at offsets of their own; the last slices of "emptied..." have nothing.
CheckpointIndex sample_index() {
  return {
      {"rows", {11, 3}, "float32", {{0, 0, 0, 3, 3}, {4096, 3, 0, 3, 3}, {8192, 6, 0, 3, 3}, {12288, 9, 0, 2, 3}}},
      {"columns",
       {3, 11},
       "float32",
       {{16384, 0, 0, 3, 3}, {20480, 0, 3, 3, 3}, {24576, 0, 6, 3, 3}, {28672, 0, 9, 3, 2}}},
      {"emptied_rows",
       {5, 2},
       "float32",
       {{32768, 0, 0, 2, 2}, {36864, 2, 0, 2, 2}, {40960, 4, 0, 1, 2}, {45056, 5, 0, 0, 2}}},
      {"emptied_columns",
       {2, 5},
       "float32",
       {{45056, 0, 0, 2, 2}, {45060, 0, 2, 2, 2}, {45064, 0, 4, 2, 1}, {45066, 0, 5, 2, 0}}},
      {"whole", {7, 5}, "float32", {{49152, 0, 0, 7, 5}}},
      {"vector", {9}, "float32", {{53248, 0, 0, 9, 1}}},
      {"cut_vector", {5}, "float32", {{53258, 0, 0, 3, 1}, {57342, 3, 0, 2, 1}}},
  };
}

/// Element (row, column) of the tensor that an index lists as number `tensor`.
float value(std::size_t tensor, std::int64_t row, std::int64_t column) {
  return static_cast<float>(10000 * (tensor + 1) + 100 * static_cast<std::size_t>(row) +
                            static_cast<std::size_t>(column));
}

/// The flat dataset with all tensors of an index in it, -1 between them.
std::vector<float> flat(CheckpointIndex const& index) {
  std::vector<float> values(total, -1);
  for (std::size_t tensor = 0; tensor < index.size(); ++tensor) {
    for (auto const& p : index[tensor].pieces) {
      auto place = static_cast<std::size_t>(p.offset);
      for (auto row = p.first_row; row < p.first_row + p.rows; ++row) {
        for (auto column = p.first_column; column < p.first_column + p.columns; ++column) {
          values[place++] = value(tensor, row, column);
        }
      }
    }
  }
  return values;
}

std::vector<float> tensor_values(std::size_t tensor, CheckpointIndexEntry const& entry) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < entry.rows(); ++row) {
    for (std::int64_t column = 0; column < entry.columns(); ++column) values.push_back(value(tensor, row, column));
  }
  return values;
}

/// As any HDF5 program reads a dataset: shape and elements.
struct View {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

View read_view(std::filesystem::path const& path, std::string const& name) {
  std::lock_guard const lock(hdf5_mutex());
  auto const file = hdf5::open_read_only(path);
  hdf5::Dataset const dataset(check_hdf5(H5Dopen2(file.get(), ("/tensors/" + name).c_str(), H5P_DEFAULT), "open"));
  hdf5::Dataspace const space(check_hdf5(H5Dget_space(dataset.get()), "describe"));
  std::vector<hsize_t> shape(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.get())));
  H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr);
  View view{{shape.begin(), shape.end()},
            std::vector<float>(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())))};
  check_hdf5(H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, view.values.data()), "read");
  return view;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::filesystem::path write(std::filesystem::path const& folder, CheckpointIndex const& index,
                            std::vector<float> const& values) {
  auto header = sample_header(1, 0);
  header.index = index;
  std::vector<FlatRuns> const runs = {{weights_dataset, total, {{0, static_cast<std::int64_t>(total)}}, values}};
  return write_checkpoint(Communicator::duplicate(MPI_COMM_WORLD), folder, header, runs);
}

TEST(CheckpointIndex, ViewsShowEachTensorWhole) {
  SharedFolder const folder("views");
  auto const index = sample_index();
  auto const path = write(folder.path(), index, flat(index));
  for (std::size_t tensor = 0; tensor < index.size(); ++tensor) {
    auto const& entry = index[tensor];
    auto const view = read_view(path, entry.name);
    EXPECT_EQ(view.shape, entry.shape) << entry.name;
    EXPECT_TRUE(same_bits(view.values, tensor_values(tensor, entry))) << entry.name;
    EXPECT_FALSE(same_bits(view.values, tensor_values(tensor + 1, entry))) << entry.name;
  }
}

/// The flat dataset is the one that holds the bits: a view of two exchanged slices shows them exchanged.
TEST(CheckpointIndex, ViewsFollowThePieces) {
  SharedFolder const folder("exchanged");
  auto const index = sample_index();
  auto exchanged = index;
  std::swap(exchanged[1].pieces[0].offset, exchanged[1].pieces[1].offset);
  auto const view = read_view(write(folder.path(), exchanged, flat(index)), "columns");
  auto expected = tensor_values(1, index[1]);
  EXPECT_FALSE(same_bits(view.values, expected));
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 3; ++column) {
      std::swap(expected[11 * row + column], expected[11 * row + column + 3]);
    }
  }
  EXPECT_TRUE(same_bits(view.values, expected));
}

TEST(CheckpointIndex, IsReadBackFromItsText) {
  auto const index = sample_index();
  EXPECT_EQ(index_from_json(index_to_json(index), "'x.h5'"), index);
  EXPECT_EQ(index[0].size(), 33);
  EXPECT_EQ(index[5].size(), 9);
  auto other = index;
  other[3].pieces[3].offset += 1;
  EXPECT_NE(index_from_json(index_to_json(other), "'x.h5'"), index);
  EXPECT_EQ(index_from_json(index_to_json({}), "'x.h5'"), CheckpointIndex());
}

TEST(CheckpointIndex, ThatIsNoneIsRefused) {
  auto const read = [](std::string const& text) { return message_of([&] { index_from_json(text, "'x.h5'"); }); };
  EXPECT_EQ(read(R"([{"name": "a", "shape": [1], "dtype": "float32", "pieces": []}])"), "no error");
  EXPECT_CONTAINS(read("["), "index of 'x.h5'");
  EXPECT_CONTAINS(read("[3]"), "index of 'x.h5' is damaged (");
  EXPECT_CONTAINS(read(R"([{"name": 3, "shape": [1], "dtype": "float32", "pieces": []}])"),
                  "index of 'x.h5' is damaged");
  EXPECT_CONTAINS(read(R"([{"name": "a", "shape": [1], "dtype": "float32", "offset": 0, "size": 1}])"),
                  "key 'pieces' not found");
  EXPECT_CONTAINS(read(R"([{"name": "a", "shape": [1], "dtype": "float32", "pieces": [{"offset": 0}]}])"),
                  "key 'first_row' not found");
}

TEST(CheckpointIndex, WithAFaultIsDescribed) {
  auto const index = sample_index();
  EXPECT_EQ(index_fault(index, total), "");
  EXPECT_EQ(index_fault({}, 0), "");
  auto const fault = [&](auto const& change) {
    auto damaged = index;
    change(damaged);
    return index_fault(damaged, total);
  };
  auto const shape = [&](std::vector<std::int64_t> const& other) {
    return fault([&](CheckpointIndex& i) { i[4].shape = other; });
  };
  for (auto const& other : std::vector<std::vector<std::int64_t>>{
           {}, {7, 5, 1}, {0, 5}, {7, -5}, {-7, -5}, {4096, 15}, {std::int64_t{1} << 62, std::int64_t{1} << 62}}) {
    EXPECT_EQ(shape(other), "tensor 'whole' has a shape that the flat datasets cannot hold");
  }

  auto const uncovered = [](std::string const& name) {
    return "the pieces of tensor '" + name + "' do not cover it, each element once";
  };
  EXPECT_EQ(shape({7, 6}), uncovered("whole"));
  EXPECT_EQ(shape({5, 7}), uncovered("whole"));
  EXPECT_EQ(fault([](auto& i) { i[4].pieces.clear(); }), uncovered("whole"));
  EXPECT_EQ(fault([](auto& i) { i[0].pieces.pop_back(); }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { i[0].pieces[1].first_row = 2; }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { i[0].pieces[1].first_column = 1; }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { i[0].pieces[1].columns = 2; }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { i[0].pieces[3].rows = 3; }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { i[0].pieces.push_back({40000, 11, 0, 1, 3}); }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { std::swap(i[0].pieces[0], i[0].pieces[1]); }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { i[0].pieces = {{0, 0, 0, -1, 3}, {0, -1, 0, 12, 3}}; }), uncovered("rows"));
  EXPECT_EQ(fault([](auto& i) { i[1].pieces[3].columns = 1; }), uncovered("columns"));
  EXPECT_EQ(fault([](auto& i) { i[1].pieces[2].first_column = 7; }), uncovered("columns"));
  EXPECT_EQ(fault([](auto& i) { i[1].pieces[2].rows = 2; }), uncovered("columns"));
  EXPECT_EQ(fault([](auto& i) { i[1].pieces[2].first_row = 1; }), uncovered("columns"));

  auto const outside = [](std::string const& offset) {
    return "a piece of tensor 'whole' at offset " + offset + " lies outside the flat datasets of 57344 elements";
  };
  auto const at = [&](std::int64_t offset) { return fault([&](auto& i) { i[4].pieces[0].offset = offset; }); };
  EXPECT_EQ(at(-1), outside("-1"));
  EXPECT_EQ(at(57310), outside("57310"));
  EXPECT_EQ(at(std::int64_t{1} << 62), outside("4611686018427387904"));
  EXPECT_EQ(at(9), "");

  EXPECT_EQ(at(8), "pieces of tensors 'rows' and 'whole' overlap in the flat datasets");
  EXPECT_EQ(fault([](auto& i) { i[1].pieces[2].offset = i[1].pieces[0].offset; }),
            "pieces of tensors 'columns' and 'columns' overlap in the flat datasets");
}

}  // namespace
}  // namespace isotrain::io::test
