#include "lib/data/shard_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/base/error.h"

namespace isotrain::data {
namespace {

/// Bytes of one pread or pwrite; Linux takes a little less than 2 GiB.
constexpr std::size_t max_transfer = std::size_t{1} << 30;

/// HDF5 sees the first member alone.
struct DriverFile {
  H5FD_t base;
  int descriptor;
  int* failure;
  haddr_t end_of_allocation;
  haddr_t end_of_file;
  dev_t device;
  ino_t inode;
};

DriverFile* as_driver_file(H5FD_t* file) {
  return reinterpret_cast<DriverFile*>(file);
}
DriverFile const* as_driver_file(H5FD_t const* file) {
  return reinterpret_cast<DriverFile const*>(file);
}

void note_failure(DriverFile* file) {
  if (*file->failure == 0) *file->failure = errno;
}

H5FD_t* driver_open(char const* name, unsigned, hid_t access, haddr_t) {
  auto const* const failure = static_cast<int* const*>(H5Pget_driver_info(access));
  int const descriptor = ::open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    **failure = errno;
    if (descriptor >= 0) ::close(descriptor);
    return nullptr;
  }
  return &(new DriverFile{{}, descriptor, *failure, 0, 0, status.st_dev, status.st_ino})->base;
}

herr_t driver_close(H5FD_t* base) {
  auto* const file = as_driver_file(base);
  if (::close(file->descriptor) != 0) note_failure(file);
  delete file;
  return 0;
}

int driver_compare(H5FD_t const* a, H5FD_t const* b) {
  auto const key = [](H5FD_t const* file) {
    return std::pair(as_driver_file(file)->device, as_driver_file(file)->inode);
  };
  return key(a) < key(b) ? -1 : key(b) < key(a) ? 1 : 0;
}

herr_t driver_query(H5FD_t const*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t driver_get_eoa(H5FD_t const* file, H5FD_mem_t) {
  return as_driver_file(file)->end_of_allocation;
}
herr_t driver_set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  as_driver_file(file)->end_of_allocation = address;
  return 0;
}
haddr_t driver_get_eof(H5FD_t const* file, H5FD_mem_t) {
  return as_driver_file(file)->end_of_file;
}

herr_t driver_read(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void* buffer) {
  auto const* const file = as_driver_file(base);
  auto* out = static_cast<char*>(buffer);
  while (size > 0) {
    auto const bytes = ::pread(file->descriptor, out, std::min(size, max_transfer), static_cast<off_t>(address));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return -1;
    if (bytes == 0) {  // beyond the end of the file everything is zero
      std::memset(out, 0, size);
      return 0;
    }
    out += bytes;
    address += static_cast<haddr_t>(bytes);
    size -= static_cast<std::size_t>(bytes);
  }
  return 0;
}

herr_t driver_write(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, void const* buffer) {
  auto* const file = as_driver_file(base);
  file->end_of_file = std::max(file->end_of_file, address + size);
  auto const* in = static_cast<char const*>(buffer);
  while (size > 0 && *file->failure == 0) {
    auto const bytes = ::pwrite(file->descriptor, in, std::min(size, max_transfer), static_cast<off_t>(address));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) {
      note_failure(file);
      break;
    }
    in += bytes;
    address += static_cast<haddr_t>(bytes);
    size -= static_cast<std::size_t>(bytes);
  }
  return 0;
}

herr_t driver_truncate(H5FD_t* base, hid_t, hbool_t) {
  auto* const file = as_driver_file(base);
  if (file->end_of_allocation == file->end_of_file) return 0;
  if (::ftruncate(file->descriptor, static_cast<off_t>(file->end_of_allocation)) != 0) note_failure(file);
  file->end_of_file = file->end_of_allocation;
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver{};
  driver.name = "isotrain_shard";
  driver.maxaddr = (haddr_t{1} << 62) - 1;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(int*);
  driver.open = driver_open;
  driver.close = driver_close;
  driver.cmp = driver_compare;
  driver.query = driver_query;
  driver.get_eoa = driver_get_eoa;
  driver.set_eoa = driver_set_eoa;
  driver.get_eof = driver_get_eof;
  driver.read = driver_read;
  driver.write = driver_write;
  driver.truncate = driver_truncate;
  constexpr H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), std::begin(driver.fl_map));
  return driver;
}

hdf5::File open_through_driver(std::filesystem::path const& path, int* failure) {
  std::lock_guard const lock(hdf5_mutex());
  static H5FD_class_t const driver = driver_class();
  hdf5::PropertyList const id(check_hdf5(H5FDregister(&driver), "register a file driver"));
  hdf5::PropertyList const access(check_hdf5(H5Pcreate(H5P_FILE_ACCESS), "create a property list"));
  check_hdf5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "choose a file format");
  check_hdf5(H5Pset_driver(access.get(), id.get(), &failure), "choose a file driver");
  // Without times the same tokens give the same bytes.
  hdf5::PropertyList const creation(check_hdf5(H5Pcreate(H5P_FILE_CREATE), "create a property list"));
  check_hdf5(H5Pset_obj_track_times(creation.get(), false), "switch times off");
  hdf5::File file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()));
  if (!file) throw Error("'" + path.string() + "' cannot be created", *failure != 0 ? std::strerror(*failure) : "");
  return file;
}

}  // namespace

ShardFile::ShardFile(std::filesystem::path const& path)
    : path_(path), failure_(std::make_unique<int>(0)), file_(open_through_driver(path, failure_.get())) {}

void ShardFile::check() const {
  if (*failure_ != 0) throw Error("'" + path_.string() + "' cannot be written", std::strerror(*failure_));
}

void ShardFile::close() {
  hdf5::close(std::move(file_));
  check();
}

}  // namespace isotrain::data
