#include "lib/train/diff.h"

#include <gtest/gtest.h>

#include "lib/base/error.h"
#include "lib/train/ledger.h"
#include "tests/lib/io/checkpoints.h"
#include "tests/lib/train/temporary_folder.h"

namespace isotrain::test {
namespace {

/// Two runs of three steps, A and B, the same to begin with.
class CompareRuns : public testing::Test {
 protected:
  CompareRuns() {
    for (RunFolder const* run : {&a_, &b_}) {
      std::filesystem::create_directories(run->root());
      write(run->settings(), "[train]\nseed = 1\n");
      write(run->metrics(), line(1) + line(2) + line(3));
    }
  }
  static void write(std::filesystem::path const& path, std::string const& text) { std::ofstream(path) << text; }
  static std::string line(int step, std::string const& loss = "3.5") {
    return "{\"step\":" + std::to_string(step) + ",\"loss\":" + loss + ",\"fingerprint\":\"0" + std::to_string(step) +
           "\"}\n";
  }
  /// Steps 1 to `steps`; in step `odd` the activation of layer 0 is another.
  static void write_ledger(RunFolder const& run, int steps, int odd = 0) {
    LedgerWriter writer(run.ledger(), {{"embedding", "layer 0"}, {"embed"}}, {});
    for (int step = 1; step <= steps; ++step) {
      std::vector<std::uint64_t> const two{7, step == odd ? 255U : 8U}, same{7, 8}, one{9};
      writer.append(step, two, same, one, one, 10);
    }
  }
  std::string head(std::string const& settings) const {
    return "A           " + a_.root().string() + "\nB           " + b_.root().string() + "\n" + settings +
           "numerics    unknown: A has no complete checkpoint\n";
  }
  std::string error() const {
    try {
      compare_runs(a_, b_);
    } catch (Error const& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
  RunFolder a_{folder_ / "a"};
  RunFolder b_{folder_ / "b"};
};

TEST_F(CompareRuns, ThatAreTheSame) {
  auto const result = compare_runs(a_, b_);
  EXPECT_TRUE(result.equal);
  EXPECT_EQ(result.text, head("settings    the same computation\n") +
                             "ledger      the runs have no ledger\n"
                             "metrics     steps 1 to 3 the same\n"
                             "the runs are the same in all steps that both have\n");
}

TEST_F(CompareRuns, OnDifferentLayouts) {
  write(b_.settings(), "[train]\nseed = 1\n[parallel]\ntensor = 2\n");
  write(b_.metrics(), line(1) + line(2) + line(3) + line(4));
  write_ledger(a_, 3);
  write_ledger(b_, 2);
  auto const result = compare_runs(a_, b_);
  EXPECT_TRUE(result.equal);
  EXPECT_EQ(result.text, head("settings    the same computation\n"
                              "layout only parallel.tensor: 1 in A, 2 in B\n") +
                             "ledger      steps 1 to 2 the same\n"
                             "metrics     steps 1 to 3 the same\n"
                             "            B goes on to step 4\n"
                             "the runs are the same in all steps that both have\n");
}

TEST_F(CompareRuns, WhoseLedgersSayWhere) {
  write_ledger(a_, 3);
  write_ledger(b_, 3, 2);
  write(b_.metrics(), line(1) + line(2, "3.25"));
  auto const result = compare_runs(a_, b_);
  EXPECT_FALSE(result.equal);
  EXPECT_EQ(result.text, head("settings    the same computation\n") +
                             "ledger      first in step 2, forward, activation of layer 0: 0000000000000008 in A, "
                             "00000000000000ff in B\n"
                             "metrics     first in step 2: loss 3.5 in A, 3.25 in B\n"
                             "            A goes on to step 3\n"
                             "the runs differ\n");
}

TEST_F(CompareRuns, WithoutLedgersSayHowToLearnMore) {
  write(b_.metrics(), line(1) + R"({"step":2,"loss":3.5,"fingerprint":"ff"})" + "\n");
  write_ledger(a_, 3);
  auto const result = compare_runs(a_, b_);
  EXPECT_FALSE(result.equal);
  EXPECT_NE(result.text.find("ledger      B has no ledger\n"), std::string::npos) << result.text;
  EXPECT_NE(result.text.find("metrics     first in step 2: fingerprint \"02\" in A, \"ff\" in B\n"), std::string::npos)
      << result.text;
  EXPECT_NE(result.text.find("the runs differ; run both with --repro.ledger true to learn the layer and the side\n"),
            std::string::npos)
      << result.text;
}

TEST_F(CompareRuns, OfAnotherComputation) {
  write(b_.settings(), "[train]\nseed = 2\n[repro]\nlanes = 4\n");
  write(b_.metrics(), line(1, "4"));
  auto const result = compare_runs(a_, b_);
  EXPECT_FALSE(result.equal);
  EXPECT_NE(result.text.find("envelope    repro.lanes: 8 in A, 4 in B\n"
                             "computation train.seed: 1 in A, 2 in B\n"),
            std::string::npos)
      << result.text;
  EXPECT_EQ(result.text.find("the same computation"), std::string::npos) << result.text;
  EXPECT_NE(result.text.find("the runs differ, and so do settings that change the computation; run both"),
            std::string::npos)
      << result.text;
}

TEST_F(CompareRuns, OfDifferentModels) {
  write_ledger(a_, 1);
  LedgerWriter(b_.ledger(), {{"embedding"}, {"embed"}}, {});
  auto const result = compare_runs(a_, b_);
  EXPECT_FALSE(result.equal);
  EXPECT_NE(result.text.find("ledger      of different models"), std::string::npos) << result.text;
}

TEST_F(CompareRuns, SettingsThatAreMissingAreNotCompared) {
  std::filesystem::remove(b_.settings());
  EXPECT_NE(compare_runs(a_, b_).text.find("settings    not compared: '" + b_.settings().string() + "' is missing\n"),
            std::string::npos);
}

TEST_F(CompareRuns, OfAnotherNumericsClass) {
  Communicator const comm = Communicator::duplicate(MPI_COMM_WORLD);
  auto const checkpoint = [&](RunFolder const& run, std::uint64_t step, std::string const& name, std::uint64_t check) {
    io::test::Sample sample(step, 4096, std::vector<FlatRange>{io::test::block_run(0, 1)});
    sample.header.numerics_class = name;
    sample.header.numerics_fingerprint = check;
    std::filesystem::create_directories(run.checkpoints());
    io::write_checkpoint(comm, run.checkpoints(), sample.header, sample.flat);
  };
  auto const numerics = [&] {
    std::string const text = compare_runs(a_, b_).text;
    auto const begin = text.find("numerics");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  checkpoint(a_, 1, "cpu", 1);
  EXPECT_EQ(numerics(), "numerics    unknown: B has no complete checkpoint");
  checkpoint(b_, 1, "cpu", 1);
  EXPECT_EQ(numerics(), "numerics    class 'cpu' and start-up check the same");
  checkpoint(b_, 2, "cpu", 2);
  EXPECT_EQ(numerics(),
            "numerics    the start-up check gave 0000000000000001 in A, 0000000000000002 in B; another model, another "
            "build, or a damaged processor");
  checkpoint(b_, 3, "cuda", 1);
  EXPECT_EQ(numerics(), "numerics    class 'cpu' in A, 'cuda' in B");
}

TEST_F(CompareRuns, RefusesWhatCannotBeCompared) {
  write(b_.metrics(), line(7));
  EXPECT_EQ(error(), "the runs cannot be compared (there is no step that both have)");
  std::filesystem::remove_all(b_.root());
  EXPECT_EQ(error(), "there is no run in '" + b_.root().string() +
                         "' (it has no run.cfg, metrics.jsonl or checkpoints); name the --run.dir of two runs");
}

TEST_F(CompareRuns, RefusesADamagedLedger) {
  write_ledger(a_, 1);
  write(b_.ledger(), "x\n");
  EXPECT_NE(error().find("is no ledger that can be read"), std::string::npos) << error();
}

}  // namespace
}  // namespace isotrain::test
