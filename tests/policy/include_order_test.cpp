#include "tests/policy/include_order.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace isotrain::test {
namespace {

TEST(IncludeOrder, HoldsInThisRepository) {
  std::filesystem::path const root = ISOTRAIN_SOURCE;
  EXPECT_GT(num_sources(root), 50u);
  for (std::string const& violation : include_violations(root)) ADD_FAILURE() << violation;
}

/// A small tree of sources to break rules in.
class IncludeOrderTest : public testing::Test {
 protected:
  void SetUp() override {
    for (char const* header : {"lib/base/a.h", "lib/device/a.h", "kernels/a.h", "lib/comm/a.h", "lib/model/a.h",
                               "lib/io/a.h", "lib/train/a.h", "app/a.h", "tests/support/a.h"}) {
      write(header, "#pragma once\n");
    }
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(std::filesystem::path const& path, std::string const& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  using Lines = std::vector<std::string>;
  Lines violations() const { return include_violations(root_); }

  std::filesystem::path const root_ =
      std::filesystem::temp_directory_path() / ("include_order_test." + std::to_string(getpid()));
};

TEST_F(IncludeOrderTest, AllowsLowerLayersAndOthersHeaders) {
  write("lib/model/b.cpp", "#include \"lib/model/a.h\"\n#include <vector>\n#include \"kernels/a.h\"\n");
  write("tests/b.cpp", "#include \"app/a.h\"\n#include \"tests/support/a.h\"\n");
  EXPECT_EQ(violations(), Lines{});
}

TEST_F(IncludeOrderTest, FindsHigherLayers) {
  write("lib/base/b.h", "#pragma once\n\n  #  include \"lib/comm/a.h\"\n");
  write("kernels/cpu/b.cpp", "#include \"lib/model/a.h\"\n");
  write("app/b.cpp", "#include \"tests/support/a.h\"\n");
  EXPECT_EQ(violations(), (Lines{"app/b.cpp:1: includes tests/support/a.h, which is a higher layer",
                                 "kernels/cpu/b.cpp:1: includes lib/model/a.h, which is a higher layer",
                                 "lib/base/b.h:3: includes lib/comm/a.h, which is a higher layer"}));
}

TEST_F(IncludeOrderTest, FindsNeighboursThatMustNotKnowEachOther) {
  write("lib/model/b.cpp", "#include \"lib/io/a.h\"\n");
  EXPECT_EQ(violations(), Lines{"lib/model/b.cpp:1: includes lib/io/a.h, which it must not know"});
}

TEST_F(IncludeOrderTest, FindsPathsThatAreNotFromTheRoot) {
  write("lib/train/b.cpp", "#include \"a.h\"\n#include \"lib/train/none.h\"\n#include <lib/base/a.h>\n");
  EXPECT_EQ(violations(),
            (Lines{"lib/train/b.cpp:1: includes a.h, which does not exist",
                   "lib/train/b.cpp:2: includes lib/train/none.h, which does not exist",
                   "lib/train/b.cpp:3: includes lib/base/a.h, in angle brackets, which are for others' headers"}));
}

TEST_F(IncludeOrderTest, FindsFilesOutsideTheMap) {
  write("lib/other/a.h", "#pragma once\n");
  write("lib/train/b.cpp", "#include \"lib/other/a.h\"\n");
  EXPECT_EQ(violations(), (Lines{"lib/other/a.h: is in no layer",
                                 "lib/train/b.cpp:1: includes lib/other/a.h, which is in no layer"}));
}

}  // namespace
}  // namespace isotrain::test
