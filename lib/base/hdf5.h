#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lib/base/unique.h"

namespace isotrain {

/// The one lock around HDF5, which is not thread-safe as distributions build it. Every function below takes it; code
/// that calls HDF5 itself holds it around the call and the check. HDF5 is set up before main: no error printing of its
/// own, no file locking (which fails on many cluster file systems) unless HDF5_USE_FILE_LOCKING is set in the
/// environment, no second attempt at exit to write what could not be written.
std::recursive_mutex& hdf5_mutex();

/// Throws Error "cannot <what> <description of where> (<HDF5's innermost message>)" if `result`, an id or status, is
/// negative; else gives it back. Example: check_hdf5(H5Dflush(dataset), "flush", dataset).
std::int64_t check_hdf5(std::int64_t result, char const* what, hid_t where = H5I_INVALID_HID);

/// HDF5 files, datasets and attributes that own what they hold. Every function throws Error when HDF5 or the file says
/// no.
///
/// T is one of float, double, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, std::int32_t, std::int64_t; it
/// is the type in the file as well as in memory: nothing is converted, a dataset of another type is an Error that names
/// both.
namespace hdf5 {

/// Releases an id of any kind. What a dataset could not write then is an Error of close() of its file; without a
/// close(), one line on stderr, unless an exception is on its way.
void release(hid_t id) noexcept;

using File = Unique<hid_t, release, H5I_INVALID_HID>;
using Group = Unique<hid_t, release, H5I_INVALID_HID>;
using Dataset = Unique<hid_t, release, H5I_INVALID_HID>;
using Dataspace = Unique<hid_t, release, H5I_INVALID_HID>;
using Datatype = Unique<hid_t, release, H5I_INVALID_HID>;
using Attribute = Unique<hid_t, release, H5I_INVALID_HID>;
using PropertyList = Unique<hid_t, release, H5I_INVALID_HID>;

/// For messages: "'x.h5'", "dataset '/tokens' of 'x.h5'".
std::string describe(hid_t id);

/// Missing, unreadable, foreign and truncated files are an Error that says which of these it is.
File open_read_only(std::filesystem::path const& path);
File open_read_write(std::filesystem::path const& path);
/// Makes an empty file in the format of HDF5 1.10, whose metadata carry checksums; without times, so that
/// equal contents give equal bytes. Replaces an existing file. Datasets
/// of 64 KiB and more begin at multiples of `alignment_bytes`.
File create(std::filesystem::path const& path, std::uint64_t alignment_bytes = 1);
/// Closes and throws if the last bytes could not be written, which the destructor cannot. Ids inside must be gone by
/// then.
void close(File file);

Group create_group(hid_t parent, std::string const& name);
bool exists(hid_t parent, std::string const& name);
/// Names of what is directly in a group or at the top of a file, ascending.
std::vector<std::string> names_in(hid_t group);

/// Attributes of a file (its top), a group or a dataset. Text of at most 60000 bytes, without zero bytes.
void write_attribute(hid_t object, std::string const& name, std::string const& value);
void write_attribute(hid_t object, std::string const& name, std::uint64_t value);
void write_attribute(hid_t object, std::string const& name, std::int64_t value);
void write_attribute(hid_t object, std::string const& name, double value);
bool has_attribute(hid_t object, std::string const& name);
/// T is std::string, std::uint64_t, std::int64_t or double, the one that was written. Throws if missing or of another
/// type.
template <class T>
T read_attribute(hid_t object, std::string const& name);

/// Text of any length without zero bytes, as a scalar string dataset.
void write_text(hid_t parent, std::string const& name, std::string const& text);
std::string read_text(hid_t parent, std::string const& name);

/// Makes a 1-D dataset of `size` elements, never pre-filled. chunk == 0: contiguous, of that size for good, space taken
/// at once; else chunks of `chunk` elements, and append() can extend it.
template <class T>
Dataset create_dataset(hid_t parent, std::string const& name, std::uint64_t size, std::uint64_t chunk = 0);
/// Opens a 1-D dataset of T.
template <class T>
Dataset open_dataset(hid_t parent, std::string const& name);
std::uint64_t size(Dataset const& dataset);

/// Adds at the end of a chunked dataset.
template <class T>
void append(Dataset const& dataset, std::span<T const> data);
/// Elements [begin, begin + data.size()); a range beyond the end is an Error. With a collective `transfer` property
/// list all ranks call it, those with nothing to move with an empty span.
template <class T>
void read(Dataset const& dataset, std::uint64_t begin, std::span<T> data, hid_t transfer = H5P_DEFAULT);
template <class T>
void write(Dataset const& dataset, std::uint64_t begin, std::span<T const> data, hid_t transfer = H5P_DEFAULT);

/// A whole small dataset at once.
template <class T>
void write_all(hid_t parent, std::string const& name, std::span<T const> data) {
  auto const dataset = create_dataset<T>(parent, name, data.size());
  write<T>(dataset, 0, data);
}
template <class T>
std::vector<T> read_all(hid_t parent, std::string const& name) {
  auto const dataset = open_dataset<T>(parent, name);
  std::vector<T> data(size(dataset));
  read<T>(dataset, 0, data);
  return data;
}

}  // namespace hdf5
}  // namespace isotrain
