#include "lib/train/diff_settings.h"

#include <gtest/gtest.h>

#include "lib/base/error.h"
#include "lib/train/settings.h"
#include "tests/lib/train/temporary_folder.h"

namespace isotrain::test {
namespace {

using enum SettingKind;

std::vector<SettingDifference> compare(std::string const& first, std::string const& second) {
  return compare_settings(first, "a/run.cfg", second, "b/run.cfg");
}

TEST(SettingKinds, OfAllThereAre) {
  TrainSettings settings;
  Settings table("", "");
  declare(table, settings);
  // What may differ between layouts, by section: a new setting counts as computation until somebody says otherwise.
  for (auto const& [name, value] : table.values()) {
    std::string const section = name.substr(0, name.find('.') + 1);
    bool const computation = section == "optim." || section == "balance.";
    if (computation) {
      EXPECT_EQ(kind_of_setting(name), SettingKind::computation) << name;
    }
    bool const other = section == "parallel." || section == "checkpoint." || section == "device." || section == "log.";
    if (other) {
      EXPECT_EQ(kind_of_setting(name), layout) << name;
    }
  }
  for (char const* name : {"repro.lanes", "repro.slices", "repro.bf16", "model.precision"}) {
    EXPECT_EQ(kind_of_setting(name), envelope) << name;
  }
  for (char const* name : {"train.micro_batch", "model.recompute", "resume", "comm", "device", "run.dir", "debug.x"}) {
    EXPECT_EQ(kind_of_setting(name), layout) << name;
  }
  for (char const* name : {"train.seed", "train.steps", "model.yarn", "data.corpus", "devices", "new.setting"}) {
    EXPECT_EQ(kind_of_setting(name), SettingKind::computation) << name;
  }
}

TEST(CompareSettings, ListsWhatDiffersInTheOrderOfTheTable) {
  EXPECT_TRUE(compare("[train]\nseed = 1\n", "[train]\nseed = 1\n").empty());
  EXPECT_EQ(compare("[parallel]\ntensor = 1\n[repro]\nlanes = 8\n[train]\nseed = 1\n",
                    "[parallel]\ntensor = 2\n[repro]\nlanes = 4\n[train]\nseed = 3\n"),
            (std::vector<SettingDifference>{{"train.seed", "1", "3", SettingKind::computation},
                                            {"parallel.tensor", "1", "2", layout},
                                            {"repro.lanes", "8", "4", envelope}}));
}

TEST(CompareSettings, WhatIsLeftOutHasItsDefault) {
  EXPECT_TRUE(compare("", "[repro]\nlanes = 8\n").empty());
  EXPECT_EQ(compare("", "[repro]\nlanes = 4\n"), (std::vector<SettingDifference>{{"repro.lanes", "8", "4", envelope}}));
}

TEST(CompareSettings, KeepsWhatThisVersionDoesNotKnow) {
  EXPECT_EQ(compare("[new]\nsetting = 1\n", "[newer]\nsetting = 2\n"),
            (std::vector<SettingDifference>{{"new.setting", "1", "not set", SettingKind::computation},
                                            {"newer.setting", "not set", "2", SettingKind::computation}}));
}

TEST(CompareSettings, PathsAreWhatTheyName) {
  TemporaryFolder const folder;
  for (char const* name : {"a", "b", "c"}) {
    std::filesystem::create_directory(folder / name);
    bool const other = std::string(name) == "c";
    std::ofstream(folder / name / "config.json") << (other ? "{\"x\":1}" : "{}");
    std::ofstream(folder / name / "corpus.json") << (other ? "{\"x\":1}" : "{}");
  }
  auto const config = [&](char const* name) { return "[model]\nconfig = " + (folder / name / "config.json").string(); };
  auto const corpus = [&](char const* name) { return "[data]\ncorpus = " + (folder / name).string(); };
  EXPECT_TRUE(compare(config("a"), config("b")).empty());
  EXPECT_TRUE(compare(corpus("a"), corpus("b")).empty());
  EXPECT_EQ(compare(config("a"), config("c")).size(), 1U);
  EXPECT_EQ(compare(corpus("a"), corpus("c")).size(), 1U);
  // Two files that are not there may have been anything.
  EXPECT_EQ(compare(corpus("x"), corpus("y")).size(), 1U);
  EXPECT_EQ(compare("[run]\ndir = a\n", "[run]\ndir = b\n").size(), 1U);
}

TEST(CompareSettings, RefusesWhatIsNoIni) {
  try {
    compare("[train]\nseed = 1\n", "[train]\nwhat\n");
    ADD_FAILURE() << "no error";
  } catch (UsageError const& error) {
    EXPECT_NE(std::string(error.what()).find("b/run.cfg:2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace isotrain::test
