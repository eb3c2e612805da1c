#include "lib/base/hdf5.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>

#include "lib/base/error.h"

namespace isotrain {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

/// HDF5 reports from the call that found the fault up to the one that we made; the first entry says what happened.
std::string innermost_message() {
  std::string message;
  auto const take_first = [](unsigned n, H5E_error2_t const* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &message);
  // System calls are reported with sizes and addresses around the part that helps a user.
  std::string const marker = "error message = '";
  if (auto const begin = message.find(marker); begin != std::string::npos) {
    auto const text = begin + marker.size();
    message = message.substr(text, message.find('\'', text) - text);
  }
  return message.empty() ? "HDF5 gives no reason" : message;
}

/// Before main, so before MPI_Init: HDF5 would ask MPI to close at MPI_Finalize what is still open, and so would
/// exit(). What is still open then are only files that a full disk refused; a second attempt at those crashes in
/// HDF5 1.10.
[[maybe_unused]] bool const ready = [] {
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
  H5dont_atexit();
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return true;
}();

std::string file_of(hid_t id) {
  auto const length = H5Fget_name(id, nullptr, 0);
  if (length <= 0) return "an unnamed file";
  std::string name(static_cast<std::size_t>(length), '\0');
  H5Fget_name(id, name.data(), name.size() + 1);
  return "'" + name + "'";
}

/// By file: what HDF5 could not write when a dataset was closed, which a destructor cannot throw.
std::map<std::string, std::string>& lost_writes() {
  static std::map<std::string, std::string> lost;
  return lost;
}

std::string name_of(hid_t id) {
  auto const length = H5Iget_name(id, nullptr, 0);
  if (length <= 0) return "?";
  std::string name(static_cast<std::size_t>(length), '\0');
  H5Iget_name(id, name.data(), name.size() + 1);
  return name;
}

}  // namespace

std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

std::int64_t check_hdf5(std::int64_t result, char const* what, hid_t where) {
  if (result >= 0) return result;
  Lock const lock(hdf5_mutex());
  // Taken first: the calls that describe the place start with an empty error stack.
  std::string const why = innermost_message();
  throw Error(std::string("cannot ") + what + (where >= 0 ? " " + hdf5::describe(where) : ""), why);
}

namespace hdf5 {
namespace {

template <class T>
hid_t native();
template <>
hid_t native<float>() {
  return H5T_NATIVE_FLOAT;
}
template <>
hid_t native<double>() {
  return H5T_NATIVE_DOUBLE;
}
template <>
hid_t native<std::uint8_t>() {
  return H5T_NATIVE_UINT8;
}
template <>
hid_t native<std::uint16_t>() {
  return H5T_NATIVE_UINT16;
}
template <>
hid_t native<std::uint32_t>() {
  return H5T_NATIVE_UINT32;
}
template <>
hid_t native<std::uint64_t>() {
  return H5T_NATIVE_UINT64;
}
template <>
hid_t native<std::int32_t>() {
  return H5T_NATIVE_INT32;
}
template <>
hid_t native<std::int64_t>() {
  return H5T_NATIVE_INT64;
}

std::string type_name(hid_t type) {
  auto const bits = std::to_string(8 * H5Tget_size(type));
  auto const order = H5Tget_order(type) == H5T_ORDER_BE ? " big-endian" : "";
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return (H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int") + bits + order;
    case H5T_FLOAT:
      return "float" + bits + order;
    case H5T_STRING:
      return "text";
    default:
      return "of a type not used here";
  }
}

void require_type(hid_t found, hid_t expected, std::string const& where) {
  if (check_hdf5(H5Tequal(found, expected), "compare types") > 0) return;
  throw Error(where + " is " + type_name(found), type_name(expected) + " expected",
              "was it written by another program or version?");
}

/// Equal contents give equal files: no times of creation in them.
PropertyList creation_without_times(hid_t property_class) {
  PropertyList creation(check_hdf5(H5Pcreate(property_class), "create a property list"));
  check_hdf5(H5Pset_obj_track_times(creation.get(), false), "switch times off");
  return creation;
}

/// Metadata in the format of HDF5 1.10, which has checksums.
PropertyList checksummed_metadata() {
  PropertyList access(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), "create a property list"));
  check_hdf5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "choose a file format");
  return access;
}

File open(std::filesystem::path const& path, unsigned mode) {
  Lock const lock(hdf5_mutex());
  int const descriptor = ::open(path.c_str(), (mode == H5F_ACC_RDONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  if (descriptor < 0) throw Error("cannot open '" + path.string() + "'", std::strerror(errno));
  ::close(descriptor);
  auto const access = checksummed_metadata();
  File file(H5Fopen(path.c_str(), mode, access.get()));
  if (!file) {
    auto const why = innermost_message();
    throw Error("cannot open '" + path.string() + "'", why,
                "is it an HDF5 file, and was it written or copied to its end?");
  }
  return file;
}

void write_scalar_attribute(hid_t object, std::string const& name, hid_t type, void const* value) {
  Lock const lock(hdf5_mutex());
  Dataspace const space(check_hdf5(H5Screate(H5S_SCALAR), "create a dataspace"));
  Attribute const attribute(check_hdf5(H5Acreate2(object, name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                       "add an attribute to", object));
  check_hdf5(H5Awrite(attribute.get(), type, value), "write", attribute.get());
}

Attribute open_attribute(hid_t object, std::string const& name) {
  if (!has_attribute(object, name)) {
    throw Error(describe(object) + " has no attribute '" + name + "'", "",
                "was it written by another program or version?");
  }
  Attribute attribute(check_hdf5(H5Aopen(object, name.c_str(), H5P_DEFAULT), "open an attribute of", object));
  Dataspace const space(check_hdf5(H5Aget_space(attribute.get()), "inspect", attribute.get()));
  if (H5Sget_simple_extent_npoints(space.get()) != 1) throw Error(describe(attribute.get()) + " is not a single value");
  return attribute;
}

template <class T>
T read_number(hid_t object, std::string const& name) {
  Lock const lock(hdf5_mutex());
  auto const attribute = open_attribute(object, name);
  Datatype const type(check_hdf5(H5Aget_type(attribute.get()), "inspect", attribute.get()));
  require_type(type.get(), native<T>(), describe(attribute.get()));
  T value{};
  check_hdf5(H5Aread(attribute.get(), native<T>(), &value), "read", attribute.get());
  return value;
}

/// Fixed length with a zero at the end, so that the empty text has a size that HDF5 accepts.
Datatype text_type(std::string const& text) {
  expects(text.find('\0') == std::string::npos, "text for HDF5 has no zero bytes");
  Datatype type(check_hdf5(H5Tcopy(H5T_C_S1), "create a text type"));
  check_hdf5(H5Tset_size(type.get(), text.size() + 1), "create a text type");
  check_hdf5(H5Tset_cset(type.get(), H5T_CSET_UTF8), "create a text type");
  return type;
}

std::size_t text_size(hid_t type, std::string const& where) {
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0) {
    throw Error(where + " is " + type_name(type), "text of fixed length expected");
  }
  return H5Tget_size(type);
}

Dataset open_any(hid_t parent, std::string const& name) {
  if (!exists(parent, name)) {
    throw Error(describe(parent) + " has no dataset '" + name + "'", "",
                "is it the right kind of file, and written by this version?");
  }
  return Dataset(check_hdf5(H5Dopen2(parent, name.c_str(), H5P_DEFAULT), ("open '" + name + "' in").c_str(), parent));
}

Dataset create_raw(hid_t parent, std::string const& name, hid_t type, std::uint64_t size, std::uint64_t chunk) {
  Lock const lock(hdf5_mutex());
  hsize_t const now = size;
  hsize_t const most = chunk == 0 ? size : H5S_UNLIMITED;
  Dataspace const space(check_hdf5(H5Screate_simple(1, &now, &most), "create a dataspace"));
  auto const layout = creation_without_times(H5P_DATASET_CREATE);
  check_hdf5(H5Pset_fill_time(layout.get(), H5D_FILL_TIME_NEVER), "switch pre-filling off");
  if (chunk == 0) {
    check_hdf5(H5Pset_alloc_time(layout.get(), H5D_ALLOC_TIME_EARLY), "set the time of allocation");
  } else {
    hsize_t const extent = chunk;
    check_hdf5(H5Pset_chunk(layout.get(), 1, &extent), "set the size of chunks");
  }
  return Dataset(check_hdf5(H5Dcreate2(parent, name.c_str(), type, space.get(), H5P_DEFAULT, layout.get(), H5P_DEFAULT),
                            ("create dataset '" + name + "' in").c_str(), parent));
}

Dataset open_raw(hid_t parent, std::string const& name, hid_t expected) {
  Lock const lock(hdf5_mutex());
  auto dataset = open_any(parent, name);
  Datatype const type(check_hdf5(H5Dget_type(dataset.get()), "inspect", dataset.get()));
  require_type(type.get(), expected, describe(dataset.get()));
  Dataspace const space(check_hdf5(H5Dget_space(dataset.get()), "inspect", dataset.get()));
  if (auto const dimensions = H5Sget_simple_extent_ndims(space.get()); dimensions != 1) {
    throw Error(describe(dataset.get()) + " has " + std::to_string(dimensions) + " dimensions", "1 expected");
  }
  return dataset;
}

struct Selection {
  Dataspace file;
  Dataspace memory;
};

Selection select(Dataset const& dataset, std::uint64_t begin, std::uint64_t count) {
  hsize_t const n = count;
  Selection s{Dataspace(check_hdf5(H5Dget_space(dataset.get()), "inspect", dataset.get())),
              Dataspace(check_hdf5(H5Screate_simple(1, &n, nullptr), "create a dataspace"))};
  auto const total = static_cast<std::uint64_t>(H5Sget_simple_extent_npoints(s.file.get()));
  if (begin > total || count > total - begin) {
    throw Error(describe(dataset.get()) + " has no elements [" + std::to_string(begin) + ", " +
                    std::to_string(begin + count) + ")",
                "it has " + std::to_string(total), "was the file cut short?");
  }
  if (count == 0) {
    check_hdf5(H5Sselect_none(s.file.get()), "select in", dataset.get());
    check_hdf5(H5Sselect_none(s.memory.get()), "select in", dataset.get());
  } else {
    hsize_t const first = begin;
    check_hdf5(H5Sselect_hyperslab(s.file.get(), H5S_SELECT_SET, &first, nullptr, &n, nullptr), "select in",
               dataset.get());
  }
  return s;
}

}  // namespace

void release(hid_t id) noexcept {
  Lock const lock(hdf5_mutex());
  // Ids that outlive MPI_Finalize are gone with the library.
  if (H5Iis_valid(id) <= 0) return;
  auto const type = H5Iget_type(id);
  auto const file = type == H5I_DATASET || type == H5I_FILE ? file_of(id) : std::string();
  if (H5Idec_ref(id) < 0) lost_writes()[file] = innermost_message();
  if (type != H5I_FILE) return;
  auto const lost = lost_writes().extract(file);
  // While an exception is on its way it tells the reason.
  if (!lost || std::uncaught_exceptions() > 0) return;
  std::fprintf(stderr, "contents of %s are lost (%s)\n", file.c_str(), lost.mapped().c_str());
}

std::string describe(hid_t id) {
  Lock const lock(hdf5_mutex());
  switch (H5Iget_type(id)) {
    case H5I_FILE:
      return file_of(id);
    case H5I_GROUP:
      return "group '" + name_of(id) + "' of " + file_of(id);
    case H5I_DATASET:
      return "dataset '" + name_of(id) + "' of " + file_of(id);
    case H5I_ATTR: {
      auto const length = H5Aget_name(id, 0, nullptr);
      std::string name(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
      H5Aget_name(id, name.size() + 1, name.data());
      return "attribute '" + name + "' of " + file_of(id);
    }
    default:
      return "an HDF5 object";
  }
}

File open_read_only(std::filesystem::path const& path) {
  return open(path, H5F_ACC_RDONLY);
}
File open_read_write(std::filesystem::path const& path) {
  return open(path, H5F_ACC_RDWR);
}

File create(std::filesystem::path const& path, std::uint64_t alignment_bytes) {
  Lock const lock(hdf5_mutex());
  auto const access = checksummed_metadata();
  check_hdf5(H5Pset_alignment(access.get(), 1 << 16, alignment_bytes), "set the alignment");
  auto const creation = creation_without_times(H5P_FILE_CREATE);
  return File(check_hdf5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
                         ("create '" + path.string() + "'").c_str()));
}

void close(File file) {
  Lock const lock(hdf5_mutex());
  check_hdf5(H5Fflush(file.get(), H5F_SCOPE_LOCAL), "write the end of", file.get());
  if (auto const lost = lost_writes().extract(file_of(file.get()))) {
    throw Error("cannot write " + lost.key(), lost.mapped());
  }
}

Group create_group(hid_t parent, std::string const& name) {
  Lock const lock(hdf5_mutex());
  auto const creation = creation_without_times(H5P_GROUP_CREATE);
  return Group(check_hdf5(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                          "create a group in", parent));
}

bool exists(hid_t parent, std::string const& name) {
  Lock const lock(hdf5_mutex());
  // HDF5 wants every step of a path to exist before it answers for the last one.
  for (auto slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    if (check_hdf5(H5Lexists(parent, name.substr(0, slash).c_str(), H5P_DEFAULT), "look into", parent) == 0)
      return false;
  }
  return check_hdf5(H5Lexists(parent, name.c_str(), H5P_DEFAULT), "look into", parent) > 0;
}

std::vector<std::string> names_in(hid_t group) {
  Lock const lock(hdf5_mutex());
  std::vector<std::string> names;
  auto const add = [](hid_t, char const* name, H5L_info_t const*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
    return 0;
  };
  check_hdf5(H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names), "list", group);
  return names;
}

void write_attribute(hid_t object, std::string const& name, std::string const& value) {
  Lock const lock(hdf5_mutex());
  expects(value.size() <= 60000, "text attributes have at most 60000 bytes");
  auto const type = text_type(value);
  write_scalar_attribute(object, name, type.get(), value.c_str());
}
void write_attribute(hid_t object, std::string const& name, std::uint64_t value) {
  write_scalar_attribute(object, name, native<std::uint64_t>(), &value);
}
void write_attribute(hid_t object, std::string const& name, std::int64_t value) {
  write_scalar_attribute(object, name, native<std::int64_t>(), &value);
}
void write_attribute(hid_t object, std::string const& name, double value) {
  write_scalar_attribute(object, name, native<double>(), &value);
}

bool has_attribute(hid_t object, std::string const& name) {
  Lock const lock(hdf5_mutex());
  return check_hdf5(H5Aexists(object, name.c_str()), "look for an attribute of", object) > 0;
}

template <>
std::uint64_t read_attribute(hid_t object, std::string const& name) {
  return read_number<std::uint64_t>(object, name);
}
template <>
std::int64_t read_attribute(hid_t object, std::string const& name) {
  return read_number<std::int64_t>(object, name);
}
template <>
double read_attribute(hid_t object, std::string const& name) {
  return read_number<double>(object, name);
}
template <>
std::string read_attribute(hid_t object, std::string const& name) {
  Lock const lock(hdf5_mutex());
  auto const attribute = open_attribute(object, name);
  Datatype const type(check_hdf5(H5Aget_type(attribute.get()), "inspect", attribute.get()));
  std::string value(text_size(type.get(), describe(attribute.get())), '\0');
  check_hdf5(H5Aread(attribute.get(), type.get(), value.data()), "read", attribute.get());
  return value.substr(0, value.find('\0'));
}

void write_text(hid_t parent, std::string const& name, std::string const& text) {
  Lock const lock(hdf5_mutex());
  auto const type = text_type(text);
  auto const creation = creation_without_times(H5P_DATASET_CREATE);
  Dataspace const space(check_hdf5(H5Screate(H5S_SCALAR), "create a dataspace"));
  Dataset const dataset(
      check_hdf5(H5Dcreate2(parent, name.c_str(), type.get(), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                 ("create dataset '" + name + "' in").c_str(), parent));
  check_hdf5(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()), "write", dataset.get());
}

std::string read_text(hid_t parent, std::string const& name) {
  Lock const lock(hdf5_mutex());
  auto const dataset = open_any(parent, name);
  Datatype const type(check_hdf5(H5Dget_type(dataset.get()), "inspect", dataset.get()));
  std::string text(text_size(type.get(), describe(dataset.get())), '\0');
  Dataspace const space(check_hdf5(H5Dget_space(dataset.get()), "inspect", dataset.get()));
  if (H5Sget_simple_extent_npoints(space.get()) != 1) throw Error(describe(dataset.get()) + " is not a single text");
  check_hdf5(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), "read", dataset.get());
  return text.substr(0, text.find('\0'));
}

std::uint64_t size(Dataset const& dataset) {
  Lock const lock(hdf5_mutex());
  Dataspace const space(check_hdf5(H5Dget_space(dataset.get()), "inspect", dataset.get()));
  return static_cast<std::uint64_t>(check_hdf5(H5Sget_simple_extent_npoints(space.get()), "measure", dataset.get()));
}

template <class T>
Dataset create_dataset(hid_t parent, std::string const& name, std::uint64_t size, std::uint64_t chunk) {
  return create_raw(parent, name, native<T>(), size, chunk);
}

template <class T>
Dataset open_dataset(hid_t parent, std::string const& name) {
  return open_raw(parent, name, native<T>());
}

template <class T>
void append(Dataset const& dataset, std::span<T const> data) {
  Lock const lock(hdf5_mutex());
  auto const before = size(dataset);
  hsize_t const after = before + data.size();
  check_hdf5(H5Dset_extent(dataset.get(), &after), "extend", dataset.get());
  write(dataset, before, data);
}

template <class T>
void read(Dataset const& dataset, std::uint64_t begin, std::span<T> data, hid_t transfer) {
  Lock const lock(hdf5_mutex());
  auto const s = select(dataset, begin, data.size());
  check_hdf5(H5Dread(dataset.get(), native<T>(), s.memory.get(), s.file.get(), transfer, data.data()), "read",
             dataset.get());
}

template <class T>
void write(Dataset const& dataset, std::uint64_t begin, std::span<T const> data, hid_t transfer) {
  Lock const lock(hdf5_mutex());
  auto const s = select(dataset, begin, data.size());
  check_hdf5(H5Dwrite(dataset.get(), native<T>(), s.memory.get(), s.file.get(), transfer, data.data()), "write",
             dataset.get());
}

#define ISOTRAIN_HDF5_TYPE(T)                                                                  \
  template Dataset create_dataset<T>(hid_t, std::string const&, std::uint64_t, std::uint64_t); \
  template Dataset open_dataset<T>(hid_t, std::string const&);                                 \
  template void append<T>(Dataset const&, std::span<T const>);                                 \
  template void read<T>(Dataset const&, std::uint64_t, std::span<T>, hid_t);                   \
  template void write<T>(Dataset const&, std::uint64_t, std::span<T const>, hid_t);
ISOTRAIN_HDF5_TYPE(float)
ISOTRAIN_HDF5_TYPE(double)
ISOTRAIN_HDF5_TYPE(std::uint8_t)
ISOTRAIN_HDF5_TYPE(std::uint16_t)
ISOTRAIN_HDF5_TYPE(std::uint32_t)
ISOTRAIN_HDF5_TYPE(std::uint64_t)
ISOTRAIN_HDF5_TYPE(std::int32_t)
ISOTRAIN_HDF5_TYPE(std::int64_t)
#undef ISOTRAIN_HDF5_TYPE

}  // namespace hdf5
}  // namespace isotrain
