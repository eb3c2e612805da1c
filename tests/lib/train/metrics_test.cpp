#include "lib/train/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/base/atomic_file.h"
#include "lib/base/error.h"

namespace isotrain::test {
namespace {

namespace fs = std::filesystem;

class MetricsFileTest : public testing::Test {
 protected:
  MetricsFileTest() {
    std::string name = (fs::temp_directory_path() / "isotrain-metrics-XXXXXX").string();
    home_ = mkdtemp(name.data());
    path_ = home_ / "metrics.jsonl";
  }
  ~MetricsFileTest() override { fs::remove_all(home_); }

  MetricsFile open(fs::path const& path) {
    return MetricsFile(path, [this](std::string const& message) { warnings_.push_back(message); });
  }

  fs::path home_;
  fs::path path_;
  std::vector<std::string> warnings_;
};

TEST(MetricsJson, HasTheDocumentedFieldsInOrder) {
  StepMetrics const metrics{.step = 3,
                            .tokens = 1536,
                            .loss = 5.5,
                            .grad_norm = 0.1,
                            .lr = 3e-4,
                            .tokens_per_s = 12345.5,
                            .step_s = 0.25,
                            .mfu = 0.5,
                            .fingerprint = 0xab,
                            .more = {{"balance_loss", 1e-8}, {"max_vio", 2}}};
  EXPECT_EQ(to_json(metrics),
            "{\"step\":3,\"tokens\":1536,\"loss\":5.5,\"grad_norm\":0.1,\"lr\":3e-04,\"tokens_per_s\":12345.5,"
            "\"step_s\":0.25,\"mfu\":0.5,\"fingerprint\":\"00000000000000ab\",\"balance_loss\":1e-08,\"max_vio\":2}");
}

TEST(MetricsJson, DoublesReadBackTheSame) {
  for (double const value : {1.0 / 3, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, -1e22, 123456789.0}) {
    auto const object = nlohmann::json::parse(to_json({.loss = value}));
    EXPECT_EQ(object.at("loss").get<double>(), value);
  }
}

TEST(MetricsJson, WhatIsNoNumberIsNull) {
  double const infinity = std::numeric_limits<double>::infinity();
  auto const object = nlohmann::json::parse(
      to_json({.loss = std::nan(""), .grad_norm = infinity, .mfu = -infinity, .more = {{"eval_loss", std::nan("")}}}));
  EXPECT_TRUE(object.at("loss").is_null());
  EXPECT_TRUE(object.at("grad_norm").is_null());
  EXPECT_TRUE(object.at("mfu").is_null());
  EXPECT_TRUE(object.at("eval_loss").is_null());
  EXPECT_EQ(object.at("lr"), 0);
}

TEST(MetricsJson, NamesMustBePlain) {
  EXPECT_THROW(to_json({.more = {{"a\"b", 1}}}), std::logic_error);
}

TEST_F(MetricsFileTest, EachLineIsVisibleAtOnce) {
  MetricsFile file = open(path_);
  file.append({.step = 1});
  EXPECT_EQ(read_file(path_), to_json({.step = 1}) + "\n");
  file.append({.step = 2});
  EXPECT_EQ(read_file(path_), to_json({.step = 1}) + "\n" + to_json({.step = 2}) + "\n");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MetricsFileTest, GoesOnBehindWhatIsThere) {
  open(path_).append({.step = 1});
  open(path_).append({.step = 2});
  EXPECT_EQ(read_file(path_), to_json({.step = 1}) + "\n" + to_json({.step = 2}) + "\n");
}

TEST_F(MetricsFileTest, AFileThatCannotBeOpenedIsNamed) {
  std::ofstream(home_ / "file") << "";
  try {
    open(home_ / "file" / "metrics.jsonl");
    ADD_FAILURE() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot write the metrics file '" + (home_ / "file" / "metrics.jsonl").string() + "' (Not a directory)");
  }
}

TEST_F(MetricsFileTest, AFullDiskIsReportedOnceAndTheRunGoesOn) {
  MetricsFile file = open("/dev/full");
  file.append({.step = 1});
  file.append({.step = 2});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(warnings_[0],
            "cannot write the metrics file '/dev/full' (No space left on device); the run goes on, lines of it are "
            "lost");
}

TEST_F(MetricsFileTest, NothingStaysOfALineThatDidNotFit) {
  std::string const line = to_json({.step = 1}) + "\n";
  MetricsFile file = open(path_);
  file.append({.step = 1});
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit const tight{line.size() + 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  file.append({.step = 2});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(path_), line);
  EXPECT_EQ(warnings_.size(), 1u);
  file.append({.step = 3});  // there is room again
  EXPECT_EQ(read_file(path_), line + to_json({.step = 3}) + "\n");
}

}  // namespace
}  // namespace isotrain::test
