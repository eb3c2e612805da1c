#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isotrain::test {

/// What a program that ran to its end left behind.
struct ProgramResult {
  int exit_code = 0;  // 128 + signal if one ended it, 124 if it ran out of time
  std::string out;
  std::string err;
};

/// A child process with an environment of its own (PATH, HOME and what Open MPI needs to run many ranks on few cores as
/// root): this test may itself be an MPI process, whose variables would confuse another mpirun.
class Program {
 public:
  /// Starts it in the background; its output goes to files in a folder of its own.
  explicit Program(std::vector<std::string> const& command, std::vector<std::string> const& environment = {});
  ~Program();  // ends it if it still runs
  Program(Program const&) = delete;
  Program& operator=(Program const&) = delete;

  void signal(int number) const;
  /// SIGKILL to it and all its children, as a power cut would.
  void kill_group();
  bool running();
  /// Waits; ends it with SIGKILL after `timeout_s`.
  ProgramResult wait(double timeout_s = 120);
  int pid() const { return pid_; }

 private:
  bool reap(bool block);

  std::filesystem::path folder_;
  int pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

/// `isotrain ARGUMENTS`, as one process.
std::vector<std::string> isotrain(std::vector<std::string> arguments);
/// `mpirun -np RANKS isotrain ARGUMENTS`.
std::vector<std::string> mpirun(int ranks, std::vector<std::string> arguments);

/// Runs to the end.
ProgramResult run(std::vector<std::string> const& command, std::vector<std::string> const& environment = {},
                  double timeout_s = 120);

/// A fresh folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  std::filesystem::path operator/(std::string const& name) const { return path_ / name; }
  std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string read_file(std::filesystem::path const& path);
void write_file(std::filesystem::path const& path, std::string const& text);

}  // namespace isotrain::test
