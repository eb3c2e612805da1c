#include "lib/base/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "lib/base/error.h"
#include "lib/base/nearest.h"

namespace isotrain::test {
namespace {

struct Options {
  std::int64_t steps = 100;
  int batch = 8;
  std::uint64_t seed = 1;
  double rate = 3e-4;
  std::string precision = "bf16";
  std::filesystem::path corpus;
  std::vector<std::string> skip{"a", "b"};
  bool ledger = true;
  bool dry_run = false;
  int tensor = 1;
  std::string resume = "auto";
  std::vector<std::string> input;
  std::filesystem::path out = "out";
};

/// A table of every kind of setting, over options of its own.
struct Table {
  Options options;
  Settings settings{"isotrain try", "Tries settings."};

  Table() {
    Options& o = options;
    settings.add("train.steps", o.steps, {.help = "Steps to run.", .unit = "steps", .check = at_least(1)});
    settings.add("train.global_batch", o.batch, {.help = "Sequences a step.", .unit = "sequences"});
    settings.add("train.seed", o.seed, {.help = "Key of all random numbers."});
    settings.add("optim.lr", o.rate, {.help = "Peak learning rate.", .check = above(0)});
    settings.add("model.precision", o.precision,
                 {.help = "What products are computed in.", .choices = {"fp32", "bf16"}});
    settings.add("data.corpus", o.corpus, {.help = "Folder that prepare wrote."});
    settings.add("data.skip", o.skip, {.help = "Documents to skip."});
    settings.add("repro.ledger", o.ledger, {.help = "Writes hashes of every step."});
    settings.add("dry-run", o.dry_run, {.help = "Prints the plan and exits."});
    settings.add("parallel.tensor", o.tensor,
                 {.help = "Ranks that share each matrix.", .check = between(1, 64), .alias = "tp"});
    settings.add("resume", o.resume, {.help = "Checkpoint to go on from."});
  }

  Options const& parse(std::vector<std::string> const& arguments) {
    EXPECT_EQ(settings.parse(arguments), Settings::Request::run);
    return options;
  }
  std::string error(std::vector<std::string> const& arguments) {
    try {
      settings.parse(arguments);
    } catch (UsageError const& e) {
      EXPECT_EQ(e.exit_code(), 2);
      return e.what();
    }
    return "no error";
  }
  std::string ini_error(std::string const& text) {
    std::istringstream stream(text);
    try {
      settings.read_ini(stream, "run.cfg");
    } catch (UsageError const& e) {
      return e.what();
    }
    return "no error";
  }
};

class ScratchFile {
 public:
  explicit ScratchFile(std::string const& text)
      : path_(std::filesystem::temp_directory_path() / ("settings_test." + std::to_string(getpid()))) {
    std::ofstream(path_) << text;
  }
  ~ScratchFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Settings, KeepsDefaults) {
  Table t;
  EXPECT_EQ(t.parse({}).steps, 100);
  EXPECT_EQ(t.options.skip, (std::vector<std::string>{"a", "b"}));
}

TEST(Settings, TakesBothForms) {
  Table t;
  Options const& o = t.parse({"--train.steps", "7", "--train.global_batch=-3", "--optim.lr", "1e-2", "--data.corpus",
                              "/a b", "--model.precision=fp32", "--train.seed", "18446744073709551615"});
  EXPECT_EQ(o.steps, 7);
  EXPECT_EQ(o.batch, -3);
  EXPECT_EQ(o.rate, 1e-2);
  EXPECT_EQ(o.corpus, "/a b");
  EXPECT_EQ(o.precision, "fp32");
  EXPECT_EQ(o.seed, ~std::uint64_t{0});
  EXPECT_TRUE(t.settings.was_given("train.steps"));
  EXPECT_FALSE(t.settings.was_given("dry-run"));
}

TEST(Settings, TakesNegativeAndEmptyValuesAsValues) {
  Table t;
  EXPECT_EQ(t.parse({"--train.global_batch", "-3", "--resume", ""}).batch, -3);
  EXPECT_EQ(t.options.resume, "");
}

TEST(Settings, TakesFlagsBareOrWithAValue) {
  EXPECT_TRUE(Table().parse({"--dry-run"}).dry_run);
  EXPECT_TRUE(Table().parse({"--dry-run", "--train.steps", "3"}).dry_run);
  EXPECT_FALSE(Table().parse({"--repro.ledger", "false"}).ledger);
  EXPECT_FALSE(Table().parse({"--repro.ledger=off"}).ledger);
  EXPECT_EQ(Table().error({"--repro.ledger=maybe"}), "wrong value 'maybe' for --repro.ledger (must be true or false)");
}

TEST(Settings, TakesAliases) {
  EXPECT_EQ(Table().parse({"--tp", "4"}).tensor, 4);
  EXPECT_EQ(Table().error({"--tp", "4", "--parallel.tensor", "2"}),
            "'--parallel.tensor' is given twice ('4', then '2')");
}

TEST(Settings, ListsReplaceTheDefault) {
  EXPECT_EQ(Table().parse({"--data.skip", "x", "--data.skip=y"}).skip, (std::vector<std::string>{"x", "y"}));
}

TEST(Settings, TakesPositionalArguments) {
  Table t;
  t.settings.add("out", t.options.out, {.help = "Where to."});
  t.settings.add("input", t.options.input, {.help = "What to read."});
  t.settings.positional("input", Settings::Presence::required);
  EXPECT_EQ(t.parse({"one", "--out", "there", "two", "--", "--three"}).input,
            (std::vector<std::string>{"one", "two", "--three"}));
  EXPECT_EQ(t.options.out, "there");
}

TEST(Settings, NamesAMissingOrSurplusPositional) {
  Table t;
  t.settings.add("out", t.options.out, {.help = "Where to."});
  t.settings.positional("out", Settings::Presence::required);
  EXPECT_EQ(t.error({}), "'out' is missing; --help shows how it is given");
  EXPECT_EQ(t.error({"a", "b"}), "unexpected argument 'b'; settings are written '--name value'");
  EXPECT_EQ(t.error({"a", "--out", "b"}), "'--out' is given twice ('b', then 'a')");
  EXPECT_EQ(Table().error({"-steps"}), "unexpected argument '-steps'; settings start with two dashes");
}

TEST(Settings, NamesTheNearestKnownSetting) {
  EXPECT_EQ(Table().error({"--train.step", "3"}), "unknown setting '--train.step'; did you mean '--train.steps'?");
  EXPECT_EQ(Table().error({"--global-batch=3"}),
            "unknown setting '--global-batch'; did you mean '--train.global_batch'?");
  EXPECT_EQ(Table().error({"--optim.steps=3"}), "unknown setting '--optim.steps'; did you mean '--train.steps'?");
  EXPECT_EQ(Table().error({"--dryrun"}), "unknown setting '--dryrun'; did you mean '--dry-run'?");
  EXPECT_EQ(Table().error({"--zzzzzzzzzzzz"}), "unknown setting '--zzzzzzzzzzzz'; --help lists all settings");
}

TEST(Settings, RefusesWrongValues) {
  EXPECT_EQ(Table().error({"--train.steps", "ten"}), "wrong value 'ten' for --train.steps (must be an integer)");
  EXPECT_EQ(Table().error({"--train.steps", "10x"}), "wrong value '10x' for --train.steps (must be an integer)");
  EXPECT_EQ(Table().error({"--train.steps", "0"}), "wrong value '0' for --train.steps (must be at least 1)");
  EXPECT_EQ(Table().error({"--train.steps", "99999999999999999999"}),
            "wrong value '99999999999999999999' for --train.steps (is out of range)");
  EXPECT_EQ(Table().error({"--train.global_batch", "3000000000"}),
            "wrong value '3000000000' for --train.global_batch (is out of range)");
  EXPECT_EQ(Table().error({"--train.seed", "-1"}),
            "wrong value '-1' for --train.seed (must be a whole number from 0 on)");
  EXPECT_EQ(Table().error({"--optim.lr", "0"}), "wrong value '0' for --optim.lr (must be above 0)");
  EXPECT_EQ(Table().error({"--optim.lr", "nan"}), "wrong value 'nan' for --optim.lr (must be finite)");
  EXPECT_EQ(Table().error({"--optim.lr", "fast"}), "wrong value 'fast' for --optim.lr (must be a number)");
  EXPECT_EQ(Table().error({"--tp", "65"}), "wrong value '65' for --tp (must be from 1 to 64)");
  EXPECT_EQ(Table().error({"--model.precision", "bf61"}),
            "wrong value 'bf61' for --model.precision (must be one of fp32, bf16); did you mean 'bf16'?");
}

TEST(Settings, RefusesMissingAndRepeatedValues) {
  EXPECT_EQ(Table().error({"--train.steps"}), "'--train.steps' has no value; write '--train.steps VALUE'");
  EXPECT_EQ(Table().error({"--train.steps", "--dry-run"}), "'--train.steps' has no value; write '--train.steps VALUE'");
  EXPECT_EQ(Table().error({"--train.steps="}), "'--train.steps' has no value; write '--train.steps VALUE'");
  EXPECT_EQ(Table().error({"--config"}), "'--config' has no value; write '--config VALUE'");
  EXPECT_EQ(Table().error({"--train.steps", "1", "--train.steps=2"}), "'--train.steps' is given twice ('1', then '2')");
  EXPECT_EQ(Table().error({"--config", "a", "--config", "b"}), "'--config' is given twice ('a', then 'b')");
}

TEST(Settings, CommandLineWinsOverFileWinsOverDefault) {
  ScratchFile const file("resume = none\n[train]\nsteps = 5\nglobal_batch = 6\n\n[data]\nskip = x\n");
  Table t;
  Options const& o = t.parse({"--train.steps", "7", "--config", file.path()});
  EXPECT_EQ(o.steps, 7);
  EXPECT_EQ(o.batch, 6);
  EXPECT_EQ(o.resume, "none");
  EXPECT_EQ(o.skip, std::vector<std::string>{"x"});
  EXPECT_EQ(o.precision, "bf16");
}

TEST(Settings, SaysWhereAFileIsWrong) {
  EXPECT_EQ(Table().error({"--config", "/no/such.cfg"}),
            "cannot open '/no/such.cfg' (No such file or directory); --config takes an INI file");
  EXPECT_EQ(Table().ini_error("[train]\nstep = 3\n"),
            "unknown setting 'train.step' at run.cfg:2; did you mean 'train.steps'?");
  EXPECT_EQ(Table().ini_error("[train]\n\nsteps = x\n"),
            "wrong value 'x' for train.steps at run.cfg:3 (must be an integer)");
  EXPECT_EQ(Table().ini_error("[train]\nsteps = 1\nsteps = 1\n"), "'train.steps' is given twice (again at run.cfg:3)");
  EXPECT_EQ(Table().ini_error("[train\n"), "malformed line at run.cfg:1 (the closing ']' is missing)");
  EXPECT_EQ(Table().ini_error("[]\n"), "malformed line at run.cfg:1 (the section has no name)");
  EXPECT_EQ(Table().ini_error("# fine\nsteps\n"),
            "malformed line at run.cfg:2 (it has no '='); write 'key = value', '[section]' or '# comment'");
  EXPECT_EQ(Table().ini_error("= 3\n"), "malformed line at run.cfg:1 (no key stands before '=')");
  EXPECT_EQ(Table().ini_error("resume = \"x\n"), "malformed line at run.cfg:1 (the closing quote is missing)");
  EXPECT_EQ(Table().ini_error("resume = \"x\" y\n"), "malformed line at run.cfg:1 (text follows the closing quote)");
  EXPECT_EQ(Table().ini_error("resume = \"\\q\"\n"),
            "malformed line at run.cfg:1 (unknown escape in quotes); known ones are \\n \\r \\t \\\" \\\\");
}

TEST(Settings, DumpReadsBackExactly) {
  Table t;
  t.parse({"--optim.lr", "0.1000000000000000055511151231257827", "--dry-run"});
  t.options.rate = std::nextafter(1.0 / 3, 1.0);
  t.options.corpus = "  odd \"name\"\twith\n# all\\ ";
  t.options.resume = "";
  t.options.skip = {"", "a=b", "; c", " d"};
  t.options.seed = ~std::uint64_t{0};
  t.options.steps = std::numeric_limits<std::int64_t>::max();
  Table u;
  std::istringstream text(t.settings.dump());
  u.settings.read_ini(text, "dump");
  EXPECT_EQ(u.settings.dump(), t.settings.dump());
  EXPECT_EQ(u.settings.values(), t.settings.values());
  EXPECT_EQ(u.options.rate, t.options.rate);
  EXPECT_EQ(u.options.corpus, t.options.corpus);
  EXPECT_EQ(u.options.skip, t.options.skip);
  EXPECT_TRUE(u.options.dry_run);

  t.options.skip = {};
  std::istringstream empty(t.settings.dump());
  u.settings.read_ini(empty, "dump");
  EXPECT_TRUE(u.options.skip.empty());
}

TEST(Settings, DumpsDefaultsThatReadBack) {
  Table t;
  EXPECT_EQ(t.settings.parse({"--train.steps", "zero", "--dump-defaults"}), Settings::Request::dump_defaults);
  std::string const defaults = t.settings.dump_defaults();
  EXPECT_NE(defaults.find("[train]\n# Steps to run. [steps]\nsteps = 100\n"), std::string::npos) << defaults;
  EXPECT_EQ(defaults.find("# Prints the plan and exits.\ndry-run = false\n"), 0u) << defaults;
  t.parse({"--train.steps", "3"});
  EXPECT_EQ(t.settings.dump_defaults(), defaults);
  std::istringstream text(defaults);
  t.settings.read_ini(text, "defaults");
  EXPECT_EQ(t.options.steps, 100);
}

TEST(Settings, HelpFitsAHundredColumns) {
  Table t;
  t.settings.add("model.a_setting_with_quite_a_long_name", t.options.out,
                 {.help = "A help text that is so long that it has to be broken over several lines, which happens at "
                          "spaces and nowhere else."});
  EXPECT_EQ(t.settings.parse({"--help"}), Settings::Request::help);
  std::string const help = t.settings.help();
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
  for (char const* part : {"Usage: isotrain try [--config FILE]",
                           "\ntrain\n  --train.steps N                   Steps to run. "
                           "[steps, default 100]\n",
                           "--model.precision fp32|bf16", "--parallel.tensor, --tp N", "--repro.ledger true|false",
                           "--dry-run                         Prints"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << "\nin\n" << help;
  }
}

TEST(Settings, RefusesTwoOfOneName) {
  Table t;
  EXPECT_THROW(t.settings.add("train.steps", t.options.steps, {.help = "again"}), std::logic_error);
  EXPECT_THROW(t.settings.add("tp", t.options.steps, {.help = "again"}), std::logic_error);
  EXPECT_THROW(t.settings.positional("nothing", Settings::Presence::optional), std::logic_error);
}

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("abcd", "abdc"), 1);
  EXPECT_EQ(edit_distance("micro-batch", "micro_batch"), 0);
}

}  // namespace
}  // namespace isotrain::test
