#include "lib/base/hdf5.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <numeric>
#include <thread>

#include "lib/base/error.h"

namespace isotrain::hdf5::test {
namespace {

/// A folder of its own for each test, removed at the end.
class Hdf5 : public testing::Test {
 protected:
  Hdf5() { std::filesystem::create_directories(folder_); }
  ~Hdf5() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path path(char const* name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      (std::string("hdf5_test.") + testing::UnitTest::GetInstance()->current_test_info()->name() +
       std::to_string(getpid()));
};

template <class F>
std::string message_of(F const& f) {
  try {
    f();
  } catch (Error const& e) {
    return e.what();
  }
  return "no error";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

template <class T>
std::vector<T> ramp(std::size_t n) {
  std::vector<T> v(n);
  std::iota(v.begin(), v.end(), T{1});
  return v;
}

template <class T>
void check_round_trip(std::filesystem::path const& path) {
  auto const data = ramp<T>(100);
  {
    auto file = create(path);
    write_all<T>(file.get(), "/whole", data);
    auto parts = create_dataset<T>(file.get(), "/parts", 100);
    write<T>(parts, 60, std::span(data).subspan(60));
    write<T>(parts, 0, std::span(data).first(60));
    auto grown = create_dataset<T>(file.get(), "/grown", 0, 16);
    append<T>(grown, std::span(data).first(37));
    append<T>(grown, std::span(data).subspan(37));
    append<T>(grown, {});
    parts = {};
    grown = {};
    close(std::move(file));
  }
  auto const file = open_read_only(path);
  EXPECT_EQ(read_all<T>(file.get(), "/whole"), data);
  EXPECT_EQ(read_all<T>(file.get(), "/parts"), data);
  EXPECT_EQ(read_all<T>(file.get(), "/grown"), data);
  std::vector<T> middle(10);
  read<T>(open_dataset<T>(file.get(), "/grown"), 35, middle);
  EXPECT_EQ(middle, std::vector<T>(data.begin() + 35, data.begin() + 45));
  EXPECT_NE(middle, std::vector<T>(data.begin() + 34, data.begin() + 44));
}

TEST_F(Hdf5, DatasetsOfEveryTypeReadBackAsWritten) {
  check_round_trip<float>(path("a.h5"));
  check_round_trip<double>(path("a.h5"));
  check_round_trip<std::uint8_t>(path("a.h5"));
  check_round_trip<std::uint16_t>(path("a.h5"));
  check_round_trip<std::uint32_t>(path("a.h5"));
  check_round_trip<std::uint64_t>(path("a.h5"));
  check_round_trip<std::int32_t>(path("a.h5"));
  check_round_trip<std::int64_t>(path("a.h5"));
}

TEST_F(Hdf5, EmptyDatasetsAreAllowed) {
  auto const file = create(path("a.h5"));
  write_all<float>(file.get(), "/empty", {});
  EXPECT_TRUE(read_all<float>(file.get(), "/empty").empty());
}

TEST_F(Hdf5, AttributesAndTextsReadBackAsWritten) {
  std::string const big(200000, 'x');
  {
    auto file = create(path("a.h5"));
    write_attribute(file.get(), "text", std::string("é {\"a\": 1}"));
    write_attribute(file.get(), "empty", std::string());
    write_attribute(file.get(), "unsigned", std::uint64_t{0xffffffffffffffffu});
    write_attribute(file.get(), "signed", std::int64_t{-3});
    write_attribute(file.get(), "real", 0.1);
    auto const group = create_group(file.get(), "/texts");
    write_text(group.get(), "big", big);
    write_text(group.get(), "empty", "");
    auto const dataset = create_dataset<float>(group.get(), "data", 3);
    write_attribute(dataset.get(), "of a dataset", std::uint64_t{5});
  }
  auto const file = open_read_only(path("a.h5"));
  auto const top = file.get();
  EXPECT_EQ(read_attribute<std::string>(top, "text"), "é {\"a\": 1}");
  EXPECT_EQ(read_attribute<std::string>(top, "empty"), "");
  EXPECT_EQ(read_attribute<std::uint64_t>(top, "unsigned"), 0xffffffffffffffffu);
  EXPECT_EQ(read_attribute<std::int64_t>(top, "signed"), -3);
  EXPECT_EQ(read_attribute<double>(top, "real"), 0.1);
  EXPECT_EQ(read_text(top, "/texts/big"), big);
  EXPECT_EQ(read_text(top, "/texts/empty"), "");
  EXPECT_TRUE(has_attribute(top, "real"));
  EXPECT_FALSE(has_attribute(top, "none"));
  EXPECT_TRUE(exists(top, "/texts/big"));
  EXPECT_FALSE(exists(top, "/texts/none"));
  EXPECT_FALSE(exists(top, "/none/big"));
  Group const group(H5Gopen2(top, "/texts", H5P_DEFAULT));
  EXPECT_EQ(names_in(group.get()), (std::vector<std::string>{"big", "data", "empty"}));
  EXPECT_EQ(read_attribute<std::uint64_t>(open_dataset<float>(group.get(), "data").get(), "of a dataset"), 5u);
}

TEST_F(Hdf5, WrongTypesAreNamed) {
  auto const file = create(path("a.h5"));
  write_all<double>(file.get(), "/tokens", ramp<double>(3));
  write_text(file.get(), "/text", "abc");
  write_attribute(file.get(), "count", std::int64_t{1});
  hsize_t const extent[2] = {2, 3};
  Dataspace const square(H5Screate_simple(2, extent, nullptr));
  Dataset(H5Dcreate2(file.get(), "/square", H5T_NATIVE_FLOAT, square.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  Dataspace const line(H5Screate_simple(1, extent, nullptr));
  Dataset(H5Dcreate2(file.get(), "/swapped", H5T_STD_U16BE, line.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));

  auto message = message_of([&] { open_dataset<std::uint16_t>(file.get(), "/tokens"); });
  EXPECT_CONTAINS(message, "dataset '/tokens' of '");
  EXPECT_CONTAINS(message, "a.h5' is float64 (uint16 expected)");
  EXPECT_CONTAINS(message_of([&] { open_dataset<std::uint16_t>(file.get(), "/swapped"); }),
                  "is uint16 big-endian (uint16 expected)");
  EXPECT_CONTAINS(message_of([&] { open_dataset<std::uint8_t>(file.get(), "/text"); }), "is text (uint8 expected)");
  EXPECT_CONTAINS(message_of([&] { open_dataset<float>(file.get(), "/square"); }), "has 2 dimensions (1 expected)");
  EXPECT_CONTAINS(message_of([&] { read_text(file.get(), "/tokens"); }), "is float64 (text of fixed length expected)");
  EXPECT_CONTAINS(message_of([&] { read_attribute<std::uint64_t>(file.get(), "count"); }), "attribute 'count' of '");
  EXPECT_CONTAINS(message_of([&] { read_attribute<std::string>(file.get(), "count"); }), "is int64");
}

TEST_F(Hdf5, MissingThingsAreNamed) {
  EXPECT_CONTAINS(message_of([&] { open_read_only(path("none.h5")); }), "none.h5' (No such file or directory)");
  EXPECT_CONTAINS(message_of([&] { open_read_only("/proc/self/mem/x"); }), "Not a directory");
  EXPECT_CONTAINS(message_of([&] { create(path("no/folder.h5")); }), "No such file or directory");
  auto const file = create(path("a.h5"));
  EXPECT_CONTAINS(message_of([&] { open_dataset<float>(file.get(), "/x"); }), "a.h5' has no dataset '/x'");
  EXPECT_CONTAINS(message_of([&] { read_attribute<double>(file.get(), "x"); }), "a.h5' has no attribute 'x'");
}

TEST_F(Hdf5, ForeignAndTruncatedFilesAreToldApart) {
  std::ofstream(path("foreign.h5")) << "not HDF5 at all";
  std::ofstream(path("empty.h5")) << "";
  EXPECT_CONTAINS(message_of([&] { open_read_only(path("foreign.h5")); }), "signature");
  EXPECT_CONTAINS(message_of([&] { open_read_only(path("empty.h5")); }), "empty.h5'");
  {
    auto file = create(path("cut.h5"));
    write_all<float>(file.get(), "/x", ramp<float>(10000));
    close(std::move(file));
  }
  std::filesystem::resize_file(path("cut.h5"), 20000);
  EXPECT_CONTAINS(message_of([&] { open_read_only(path("cut.h5")); }), "truncated file");
}

TEST_F(Hdf5, RangesBeyondTheEndAreErrors) {
  auto const file = create(path("a.h5"));
  auto const dataset = create_dataset<float>(file.get(), "/x", 10);
  std::vector<float> v(4);
  EXPECT_CONTAINS(message_of([&] { read<float>(dataset, 7, v); }), "has no elements [7, 11) (it has 10)");
  EXPECT_CONTAINS(message_of([&] { write<float>(dataset, 7, v); }), "has no elements [7, 11)");
  EXPECT_CONTAINS(message_of([&] { read<float>(dataset, ~std::uint64_t{0} - 1, v); }), "has no elements");
  EXPECT_CONTAINS(message_of([&] { append<float>(dataset, v); }), "cannot extend dataset '/x'");
}

TEST_F(Hdf5, ChecksReportTheInnermostReasonAndPrintNothing) {
  testing::internal::CaptureStderr();
  std::lock_guard const lock(hdf5_mutex());
  auto const message =
      message_of([&] { check_hdf5(H5Fopen(path("none.h5").c_str(), 0, H5P_DEFAULT), "open the file"); });
  EXPECT_EQ(message, "cannot open the file (No such file or directory)");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(check_hdf5(7, "count"), 7);
}

/// No file of this process may grow beyond `bytes`, as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(FullDisk const&) = delete;
  FullDisk& operator=(FullDisk const&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(Hdf5, AFullDiskIsAnErrorWhereverItShows) {
  // Chunks and metadata are written when a dataset or the file is closed, long after the call that made them.
  for (rlim_t const bytes : {rlim_t{10}, rlim_t{3000}, rlim_t{20000}, rlim_t{60000}}) {
    FullDisk const full(bytes);
    testing::internal::CaptureStderr();
    auto const message = message_of([&] {
      auto file = create(path("a.h5"));
      {
        auto const chunked = create_dataset<float>(file.get(), "/chunked", 0, 1000);
        for (int i = 0; i < 20; ++i) append<float>(chunked, ramp<float>(1000));
      }
      write_all<float>(file.get(), "/small", ramp<float>(10));
      close(std::move(file));
    });
    EXPECT_CONTAINS(message, "a.h5'");
    EXPECT_CONTAINS(message, "File too large");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
  auto file = create(path("b.h5"));
  write_all<float>(file.get(), "/x", ramp<float>(100000));
  close(std::move(file));
  EXPECT_EQ(read_all<float>(open_read_only(path("b.h5")).get(), "/x"), ramp<float>(100000));
}

TEST_F(Hdf5, ThreadsMayWorkSideBySide) {
  auto const work = [&](std::string const& name) {
    auto file = create(path(name.c_str()));
    for (int i = 0; i < 50; ++i) write_all<float>(file.get(), std::to_string(i), ramp<float>(1000));
    for (int i = 0; i < 50; ++i) EXPECT_EQ(read_all<float>(file.get(), std::to_string(i)), ramp<float>(1000));
  };
  std::thread other([&] { work("a.h5"); });
  work("b.h5");
  other.join();
}

}  // namespace
}  // namespace isotrain::hdf5::test
