#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <vector>

namespace isotrain::io {

/// The flat dataset of weights. The file shows each tensor of the index in its own shape under /tensors/NAME too.
inline constexpr char const* weights_dataset = "master";

/// A rectangle of a tensor that lies row after row, without gaps, in the flat datasets.
struct CheckpointPiece {
  std::int64_t offset = 0;        // first element in the flat datasets
  std::int64_t first_row = 0;     // in the tensor
  std::int64_t first_column = 0;  // in the tensor; 0 where it has one dimension
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // 1 where it has one dimension

  std::int64_t size() const { return rows * columns; }
  bool operator==(CheckpointPiece const&) const = default;
};

/// Where one logical tensor lies in the flat datasets: whole in one piece, or cut into rows or into columns.
struct CheckpointIndexEntry {
  std::string name;
  std::vector<std::int64_t> shape;  // [rows, columns] or [rows]
  std::string dtype = "float32";
  std::vector<CheckpointPiece> pieces;  // ascending in the tensor; the last ones may be empty

  std::int64_t rows() const { return shape[0]; }
  std::int64_t columns() const { return shape.size() > 1 ? shape[1] : 1; }
  std::int64_t size() const { return rows() * columns(); }
  bool operator==(CheckpointIndexEntry const&) const = default;
};

using CheckpointIndex = std::vector<CheckpointIndexEntry>;

/// A JSON list of {name, shape, dtype, pieces: [{offset, first_row, first_column, rows, columns}]}.
std::string index_to_json(CheckpointIndex const& index);
/// Throws Error naming `where` if the text is not such a list. Says nothing about the numbers.
CheckpointIndex index_from_json(std::string const& text, std::string const& where);

/// What is wrong with an index of flat datasets of `total` elements, in words; empty if nothing is: every tensor has
/// one or two dimensions and is covered by its pieces, each element once, and all pieces lie in the datasets, apart
/// from each other.
std::string index_fault(CheckpointIndex const& index, std::uint64_t total);

/// Makes an HDF5 virtual dataset of the tensor's name and own shape in `group`, put together from its pieces of the
/// weights dataset of `total` elements, so that h5py and h5dump find it.
void add_view(hid_t group, CheckpointIndexEntry const& entry, std::uint64_t total);

}  // namespace isotrain::io
