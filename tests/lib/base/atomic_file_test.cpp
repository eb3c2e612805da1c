#include "lib/base/atomic_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/json.h"

namespace isotrain::test {
namespace {

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  template <class Body>
  static std::string error_of(Body&& body) {
    try {
      body();
    } catch (Error const& error) {
      return error.what();
    }
    return "no error";
  }

  static std::string quoted(std::filesystem::path const& path) {
    std::string text = "'";
    return text.append(path.string()).append("'");
  }

  std::filesystem::path const folder_ =
      std::filesystem::temp_directory_path() / ("atomic_file_test." + std::to_string(getpid()));
  std::filesystem::path const path_ = folder_ / "file";
  std::filesystem::path const partial_ = folder_ / "file.partial";
};

TEST_F(AtomicFileTest, ReplacesTheWholeFile) {
  write_file_atomically(path_, "long old content");
  write_file_atomically(path_, "new\0!");
  EXPECT_EQ(read_file(path_), "new");
  write_file_atomically(path_, "");
  EXPECT_EQ(read_file(path_), "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "file.partial"));
}

TEST_F(AtomicFileTest, WithoutCommitTheOldFileStays) {
  write_file_atomically(path_, "old");
  {
    AtomicFile file(path_);
    std::ofstream(file.partial()) << "half";
    EXPECT_EQ(read_file(path_), "old");
  }
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "file.partial"));
}

TEST_F(AtomicFileTest, SaysWhatItCannotDo) {
  EXPECT_EQ(error_of([&] { write_file_atomically(folder_ / "none" / "x", "text"); }),
            "cannot write " + quoted(folder_ / "none" / "x.partial") + " (No such file or directory)");
  EXPECT_EQ(error_of([&] { AtomicFile(path_).commit(); }),
            "cannot open " + quoted(partial_) + " to make it durable (No such file or directory)");
  std::filesystem::create_directories(path_ / "taken");
  EXPECT_EQ(error_of([&] { write_file_atomically(path_, "text"); }),
            "cannot rename " + quoted(partial_) + " to " + quoted(path_) + " (Is a directory)");
  EXPECT_EQ(error_of([&] { read_file(path_); }), "cannot read " + quoted(path_) + " (Is a directory)");
  EXPECT_EQ(error_of([&] { read_file(folder_ / "x"); }),
            "cannot open " + quoted(folder_ / "x") + " (No such file or directory)");
}

TEST_F(AtomicFileTest, AFullDiskIsAnError) {
  std::filesystem::create_symlink("/dev/full", folder_ / "file.partial");
  EXPECT_EQ(error_of([&] { write_file_atomically(path_, "text"); }),
            "cannot write " + quoted(partial_) + " (No space left on device)");
}

TEST_F(AtomicFileTest, ReadsJson) {
  write_file_atomically(path_, R"({"layers": 4})");
  EXPECT_EQ(read_json(path_).at("layers").get<int>(), 4);
  write_file_atomically(path_, "{\n  \"layers\": 4,,\n}");
  EXPECT_EQ(error_of([&] { read_json(path_); }), quoted(path_) + " is not JSON (wrong at line 2, column 15)");
  EXPECT_EQ(error_of([&] { parse_json("", "config"); }), "'config' is not JSON (wrong at line 1, column 1)");
}

}  // namespace
}  // namespace isotrain::test
