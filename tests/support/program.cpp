#include "tests/support/program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace isotrain::test {
namespace {

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "isotrain-test-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a folder in the temporary directory");
  return name;
}

std::vector<std::string> child_environment(std::vector<std::string> const& more) {
  std::vector<std::string> result{"OMPI_ALLOW_RUN_AS_ROOT=1",
                                  "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                  "OMPI_MCA_rmaps_base_oversubscribe=1",
                                  "OMPI_MCA_mpi_yield_when_idle=1",
                                  "OMPI_MCA_hwloc_base_binding_policy=none",
                                  "OMPI_MCA_btl_tcp_if_include=lo",
                                  "OMPI_MCA_oob_tcp_if_include=lo",
                                  "OMP_NUM_THREADS=1"};
  for (char const* name :
       {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"}) {
    if (char const* value = std::getenv(name)) result.push_back(std::string(name) + "=" + value);
  }
  result.insert(result.end(), more.begin(), more.end());
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Program::Program(std::vector<std::string> const& command, std::vector<std::string> const& environment)
    : folder_(make_folder()) {
  // `env` applies assignments in order, so that a caller's value replaces ours.
  std::vector<std::string> arguments{"env", "-i"};
  for (auto const& variable : child_environment(environment)) arguments.push_back(variable);
  arguments.insert(arguments.end(), command.begin(), command.end());
  auto const argv = pointers(arguments);
  std::string const out = folder_ / "out";
  std::string const err = folder_ / "err";
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    setpgid(0, 0);
    auto const redirect = [](char const* path, int flags, int to) {
      int const fd = open(path, flags, 0600);
      if (fd < 0 || dup2(fd, to) < 0) _exit(126);
    };
    redirect("/dev/null", O_RDONLY, 0);
    redirect(out.c_str(), O_WRONLY | O_CREAT, 1);
    redirect(err.c_str(), O_WRONLY | O_CREAT, 2);
    execvp("env", argv.data());
    _exit(127);
  }
}

Program::~Program() {
  if (!ended_) kill_group();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Program::signal(int number) const {
  kill(pid_, number);
}

void Program::kill_group() {
  kill(-pid_, SIGKILL);
  reap(true);
}

bool Program::reap(bool block) {
  if (!ended_) ended_ = waitpid(pid_, &status_, block ? 0 : WNOHANG) == pid_;
  return ended_;
}

bool Program::running() {
  return !reap(false);
}

ProgramResult Program::wait(double timeout_s) {
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  bool out_of_time = false;
  while (!reap(false)) {
    if (std::chrono::steady_clock::now() > end) {
      out_of_time = true;
      kill_group();
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  int const code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return {out_of_time ? 124 : code, read_file(folder_ / "out"), read_file(folder_ / "err")};
}

std::vector<std::string> isotrain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ISOTRAIN_PROGRAM);
  return arguments;
}

std::vector<std::string> mpirun(int ranks, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"mpirun", "-q", "-np", std::to_string(ranks), ISOTRAIN_PROGRAM});
  return arguments;
}

ProgramResult run(std::vector<std::string> const& command, std::vector<std::string> const& environment,
                  double timeout_s) {
  return Program(command, environment).wait(timeout_s);
}

TemporaryFolder::TemporaryFolder() : path_(make_folder()) {}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(std::filesystem::path const& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_file(std::filesystem::path const& path, std::string const& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace isotrain::test
