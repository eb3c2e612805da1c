// What damage, full disks and lost processes do to a run: it goes on where it can, else stops on all ranks with one
// message, and its last good checkpoint resumes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <sstream>
#include <thread>

#include "tests/app/expect_error.h"
#include "tests/app/tiny_run.h"

namespace isotrain::test {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

/// Processes whose parent is `pid`.
std::vector<int> children(int pid) {
  std::vector<int> found;
  for (auto const& entry : fs::directory_iterator("/proc")) {
    std::string const name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string const stat = read_file(entry.path() / "stat");
    std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    char state = 0;
    int parent = 0;
    if (fields >> state >> parent && parent == pid) found.push_back(std::stoi(name));
  }
  return found;
}

/// Changes one bit of the numbers in a checkpoint: where it is dense, unlike headers and gaps.
void flip_a_weight(fs::path const& path) {
  std::string bytes = read_file(path);
  constexpr std::size_t block = 2048;
  std::size_t at = 0;
  while (at + block < bytes.size() && std::count(bytes.data() + at, bytes.data() + at + block, '\0') > 32) at += block;
  ASSERT_LT(at + block, bytes.size());
  bytes[at + block / 2] = static_cast<char>(bytes[at + block / 2] ^ 4);
  write_file(path, bytes);
}

class Faults : public testing::Test {
 protected:
  static constexpr int steps = 6;

  static void SetUpTestSuite() {
    world_ = new TinyWorld;
    std::string const subwords = *world_ / "subwords";
    auto const prepared =
        run(isotrain({"prepare", *world_ / "text.txt", "--documents", "paragraphs", "--tokenizer", "sentencepiece:300",
                      "--validation", "0.1", "--shards", "8", "--out", subwords}));
    ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
    std::string config = read_file(*world_ / "llama.json");
    config.replace(config.find("257"), 3, "300");  // either tokenizer fits
    write_file(*world_ / "model.json", config);
    expect_success(run(isotrain(train("whole", {"--checkpoint.keep", "9"}))));
    ASSERT_EQ(world_->steps("whole").size(), static_cast<std::size_t>(steps));
  }
  static void TearDownTestSuite() { delete world_; }

  static Words train(std::string const& folder, Words more = {}, std::string const& model = "model") {
    for (auto const& [key, value] :
         {std::pair<std::string, std::string>{"--train.steps", std::to_string(steps)}, {"--checkpoint.every", "2"}}) {
      if (std::ranges::find(more, key) == more.end()) more.insert(more.end(), {key, value});
    }
    return world_->train(model, folder, more);
  }
  static fs::path checkpoint(std::string const& folder, std::size_t step) {
    return *world_ / folder / "checkpoints" / checkpoint_name(step);
  }
  static Words checkpoints(std::string const& folder) {
    Words names;
    for (auto const& entry : fs::directory_iterator(*world_ / folder / "checkpoints")) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  /// A copy of the whole run that has come as far as `step`.
  static void copy_run(std::string const& folder, std::size_t step = steps) {
    fs::copy(*world_ / "whole", *world_ / folder, fs::copy_options::recursive);
    for (std::size_t later = step + 2; later <= steps; later += 2) fs::remove(checkpoint(folder, later));
  }

  /// `command` with files of at most 1 MB, less than a checkpoint, on the ranks for which the shell condition holds.
  static Words limited(Words command, std::string const& condition = "true") {
    auto const program = std::ranges::find(command, isotrain({}).front());
    command.insert(program, {"bash", "-c", "if " + condition + "; then ulimit -f 1000; fi; exec \"$@\"", "bash"});
    return command;
  }
  // Open MPI's shared memory is files, too.
  static inline Words const without_shared_memory{"OMPI_MCA_btl=self,tcp"};

  static TinyWorld* world_;
};
TinyWorld* Faults::world_ = nullptr;

struct Damage {
  std::string name;
  std::function<void(fs::path const&)> apply;
  std::string message;
};
std::vector<Damage> const damages{
    {"truncated", [](fs::path const& path) { fs::resize_file(path, fs::file_size(path) / 2); }, "truncated file"},
    {"empty", [](fs::path const& path) { write_file(path, ""); }, "is it an HDF5 file"},
    {"flipped", flip_a_weight, "damaged"},
    {"foreign",
     [](fs::path const& path) {
       fs::copy_file(path.parent_path().parent_path().parent_path() / "corpus" / "shard-00000.h5", path,
                     fs::copy_options::overwrite_existing);
     },
     "is not a checkpoint"},
};

TEST_F(Faults, ADamagedCheckpointGivesWayToAnOlderOne) {
  for (auto const& damage : damages) {
    SCOPED_TRACE(damage.name);
    std::string const folder = "older-" + damage.name;
    copy_run(folder);
    damage.apply(checkpoint(folder, 6));
    auto const result = run(mpirun(3, train(folder)));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(world_->steps(folder), world_->steps("whole"));
    auto const warnings = lines_with("warning", result.err);
    ASSERT_EQ(warnings.size(), 1U) << result.err;
    EXPECT_NE(warnings[0].find(checkpoint_name(6)), std::string::npos) << warnings[0];
    EXPECT_NE(warnings[0].find(damage.message), std::string::npos) << warnings[0];
    EXPECT_NE(result.out.find("resumed from " + checkpoint(folder, 4).string()), std::string::npos) << result.out;
  }
}

TEST_F(Faults, ADamagedCheckpointThatWasAskedForIsAnError) {
  copy_run("asked");
  for (auto const& damage : damages) {
    SCOPED_TRACE(damage.name);
    fs::copy_file(checkpoint("whole", 6), checkpoint("asked", 6), fs::copy_options::overwrite_existing);
    damage.apply(checkpoint("asked", 6));
    expect_one_error(run(mpirun(3, train("new", {"--resume", checkpoint("asked", 6)}))), 1, {damage.message});
    EXPECT_FALSE(fs::exists(*world_ / "new"));
    expect_one_error(run(isotrain({"generate", checkpoint("asked", 6), "--tokens", "1"})), 1, {damage.message});
  }
  expect_one_error(run(mpirun(2, train("new", {"--resume", *world_ / "absent.h5"}))), 2, {"absent.h5'", "--resume"});
  EXPECT_FALSE(fs::exists(*world_ / "new"));
}

TEST_F(Faults, OnlyDamagedCheckpointsAreNotTakenForANewRun) {
  for (std::size_t const damage : {0U, 2U}) {  // found at once, and found when read
    SCOPED_TRACE(damages[damage].name);
    std::string const folder = "none-" + damages[damage].name;
    copy_run(folder);
    for (std::size_t const step : {2U, 4U, 6U}) damages[damage].apply(checkpoint(folder, step));
    std::string const metrics = read_file(*world_ / folder / "metrics.jsonl");
    expect_one_error(run(mpirun(2, train(folder))), 1, {"no checkpoint in '", "can be used", "--run.dir"});
    EXPECT_EQ(read_file(*world_ / folder / "metrics.jsonl"), metrics);
    EXPECT_EQ(checkpoints(folder).size(), 3U);
  }
}

TEST_F(Faults, ACheckpointOfAnotherComputationIsNotResumed) {
  copy_run("same", 4);
  std::string config = read_file(*world_ / "model.json");
  config.replace(config.find("10000"), 5, "20000");
  write_file(*world_ / "theta.json", config);
  struct Other {
    int ranks;
    Words arguments;
    Words fragments;
    std::string model = "model";
  };
  std::vector<Other> const others{
      {3, {"--train.seed", "5", "--repro.lanes", "4"}, {"train.seed (1 then, 5 now)", "repro.lanes (8 then, 4 now)"}},
      {0, {"--repro.slices", "2"}, {"repro.slices (4 then, 2 now)"}},
      {0, {"--model.precision", "bf16"}, {"model.precision (fp32 then, bf16 now)"}},
      {0, {"--train.sequence", "16"}, {"train.sequence (32 then, 16 now)"}},
      {0, {"--data.corpus", *world_ / "subwords"}, {"tokenizer"}},
      {2, {}, {"the model's config"}, "theta"},
      {0, {}, {"the model's config"}, "moe"},
  };
  for (auto const& other : others) {
    SCOPED_TRACE(testing::PrintToString(other.arguments) + other.model);
    auto const arguments = train("same", other.arguments, other.model);
    auto fragments = other.fragments;
    fragments.push_back("another --run.dir");
    expect_one_error(run(other.ranks == 0 ? isotrain(arguments) : mpirun(other.ranks, arguments)), 2, fragments);
  }
  EXPECT_EQ(world_->steps("same"), world_->steps("whole"));
  EXPECT_EQ(read_file(*world_ / "same" / "run.cfg"), read_file(*world_ / "whole" / "run.cfg"));
  // The same computation goes on, on other ranks.
  expect_success(run(mpirun(3, train("same"))));
  EXPECT_EQ(world_->steps("same"), world_->steps("whole"));
}

TEST_F(Faults, ARunFolderThatCannotBeUsed) {
  auto const before = world_->steps("whole");
  expect_one_error(run(mpirun(2, train("whole", {"--resume", "none"}))), 2, {"whole' already has a run", "--run.dir"});
  EXPECT_EQ(world_->steps("whole"), before);
  EXPECT_EQ(checkpoints("whole").size(), 3U);

  write_file(*world_ / "file", "");
  expect_one_error(run(mpirun(3, train("file/run"))), 1, {"file/run'", "Not a directory", "--run.dir"});
  fs::create_directory(*world_ / "no-logs");
  write_file(*world_ / "no-logs" / "logs", "");
  expect_one_error(run(mpirun(3, train("no-logs"))), 1, {"no-logs/logs'"});
  fs::create_directories(*world_ / "no-log" / "logs" / "rank-00001.log");
  expect_one_error(run(mpirun(2, train("no-log"))), 1, {"rank 1: ", "rank-00001.log'", "Is a directory"});
  fs::create_directories(*world_ / "no-metrics" / "metrics.jsonl");
  expect_one_error(run(mpirun(2, train("no-metrics"))), 1, {"no-metrics/metrics.jsonl'", "Is a directory"});
}

TEST_F(Faults, AFullDiskCostsCheckpointsAndNoSteps) {
  auto const result = run(limited(mpirun(1, train("full"))));
  expect_one_error(result, 1, {checkpoint_name(6)});
  EXPECT_EQ(lines_with("warning: no checkpoint at this step", result.err).size(), 2U) << result.err;
  EXPECT_EQ(world_->steps("full"), world_->steps("whole"));
  EXPECT_EQ(checkpoints("full"), Words());
}

TEST_F(Faults, AFullDiskOfOneRankLeavesTheCheckpointBefore) {
  copy_run("full-later", 2);
  std::string const before = read_file(checkpoint("full-later", 2));
  auto const result =
      run(limited(mpirun(2, train("full-later")), "[ $OMPI_COMM_WORLD_RANK = 1 ]"), without_shared_memory);
  expect_one_error(result, 1, {checkpoint_name(6)});
  EXPECT_EQ(lines_with("warning", result.err).size(), 1U) << result.err;  // of step 4
  EXPECT_EQ(checkpoints("full-later"), Words{checkpoint_name(2)});
  EXPECT_EQ(read_file(checkpoint("full-later", 2)), before);
  expect_success(run(mpirun(3, train("full-later"))));
  EXPECT_EQ(world_->steps("full-later"), world_->steps("whole"));
}

TEST_F(Faults, AKilledRankEndsTheJobAndItsCheckpointResumes) {
  Words const long_run{"--train.steps", "100000"};
  int const ranks = 3;
  Program program(mpirun(ranks, train("killed", long_run)));
  while (program.running() && world_->steps_so_far("killed") < 5) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  auto const processes = children(program.pid());
  ASSERT_EQ(processes.size(), static_cast<std::size_t>(ranks));
  kill(processes.back(), SIGKILL);
  auto const result = program.wait(30);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.exit_code, 124) << "the other ranks waited";
  auto const before = world_->steps_so_far("killed");
  auto resume = train("killed", long_run);
  resume.insert(resume.end(), {"--run.max_seconds", "0.001"});
  auto const resumed = run(mpirun(2, resume));
  EXPECT_EQ(resumed.exit_code, 75) << resumed.err;
  EXPECT_TRUE(lines_with("error", resumed.err).empty()) << resumed.err;
  EXPECT_NE(resumed.out.find("resumed from"), std::string::npos) << resumed.out;
  EXPECT_GE(world_->steps_so_far("killed") + 3, before);
}

TEST_F(Faults, ANumberThatIsNoneStopsTheRunAndIsNamed) {
  Words const wild{"--optim.lr", "1e6", "--optim.clip", "0", "--optim.warmup", "0", "--checkpoint.every", "1"};
  std::string message;
  for (int const ranks : {0, 2}) {
    std::string const folder = "wild-" + std::to_string(ranks);
    auto const arguments = train(folder, wild);
    auto const result = run(ranks == 0 ? isotrain(arguments) : mpirun(ranks, arguments));
    expect_one_error(result, 1, {"step 3: NaN or infinity in", "layers.1", "--optim.lr"});
    EXPECT_EQ(world_->steps(folder).size(), 2U);
    EXPECT_TRUE(fs::exists(checkpoint(folder, 2)));
    if (ranks == 0) message = result.err;
    EXPECT_EQ(result.err, message) << "on " << ranks << " ranks";
  }
}

/// Of all that is not finite, every layout names the same first.
TEST_F(Faults, AnActivationThatIsNoneIsNamedTheSameOnEveryLayout) {
  std::string message;
  for (Words const& layout :
       {Words{"1"}, Words{"3"}, Words{"4", "--tp", "2", "--pp", "2"},
        Words{"6", "--dp", "3", "--pp", "2", "--parallel.layers", "1,7"}, Words{"4", "--dp", "4", "--ep", "4"}}) {
    SCOPED_TRACE(testing::PrintToString(layout));
    Words wild(layout.begin() + 1, layout.end());
    wild.insert(wild.end(), {"--model.init_std", "1e18"});
    auto const result =
        run(mpirun(std::stoi(layout.front()), world_->train("deep-moe", "huge-" + layout.front(), wild)));
    expect_one_error(result, 1, {"step 1: NaN or infinity in layer 0: output", "lane 0, sample 1"});
    if (message.empty()) message = result.err;
    EXPECT_EQ(result.err, message);
    fs::remove_all(*world_ / ("huge-" + layout.front()));
  }
}

}  // namespace
}  // namespace isotrain::test
