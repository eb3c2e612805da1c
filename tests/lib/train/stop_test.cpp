#include "lib/train/stop.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <thread>

#include "lib/base/error.h"

namespace isotrain::test {
namespace {

void (*handler_of(int signal))(int) {
  struct sigaction action;
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

TEST(StopRequest, NothingIsRequestedAtFirst) {
  StopRequest const stop;
  EXPECT_FALSE(stop.requested());
  EXPECT_EQ(stop.reason(), "");
}

TEST(StopRequest, EachSignalRequestsAStopAndIsNamed) {
  std::pair<int, char const*> const cases[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}};
  for (auto const& [signal, name] : cases) {
    StopRequest const stop;
    raise(signal);
    EXPECT_TRUE(stop.requested()) << name;
    EXPECT_EQ(stop.reason(), name);
  }
}

TEST(StopRequest, ANewOneForgetsTheSignalOfTheLast) {
  {
    StopRequest const stop;
    raise(SIGTERM);
  }
  EXPECT_FALSE(StopRequest().requested());
}

TEST(StopRequest, RestoresTheHandlersItFound) {
  auto const ours = [](int) {};
  auto* const before = std::signal(SIGUSR1, ours);
  auto* const interrupt = handler_of(SIGINT);
  {
    StopRequest const stop;
    EXPECT_NE(handler_of(SIGUSR1), static_cast<void (*)(int)>(ours));
    raise(SIGINT);  // which resets its own handler
  }
  EXPECT_EQ(handler_of(SIGUSR1), static_cast<void (*)(int)>(ours));
  EXPECT_EQ(handler_of(SIGINT), interrupt);
  std::signal(SIGUSR1, before);
}

/// How a child ends that handles SIGINT and receives it `times` times.
int status_after_interrupts(int times) {
  pid_t const child = fork();
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    StopRequest const stop;
    for (int i = 0; i < times; ++i) raise(SIGINT);
    _exit(stop.requested() ? 75 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(StopRequest, TheSecondInterruptKills) {
  int const once = status_after_interrupts(1);
  EXPECT_TRUE(WIFEXITED(once));
  EXPECT_EQ(WEXITSTATUS(once), 75);
  int const twice = status_after_interrupts(2);
  EXPECT_TRUE(WIFSIGNALED(twice));
  EXPECT_EQ(WTERMSIG(twice), SIGINT);
}

TEST(StopRequest, StopsWhenItsTimeIsUp) {
  StopRequest const stop(0.02);
  EXPECT_FALSE(stop.requested());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(stop.reason(), "--run.max_seconds is over");
  raise(SIGUSR1);
  EXPECT_EQ(stop.reason(), "SIGUSR1");
}

TEST(StopRequest, RefusesTimesThatAreNone) {
  EXPECT_THROW(StopRequest(-1), UsageError);
  EXPECT_THROW(StopRequest(std::numeric_limits<double>::quiet_NaN()), UsageError);
  EXPECT_FALSE(StopRequest(std::numeric_limits<double>::infinity()).requested());
}

TEST(StopRequest, OnlyOneAtATime) {
  StopRequest const stop;
  EXPECT_THROW(StopRequest(), std::logic_error);
  raise(SIGTERM);  // still handled by the first
  EXPECT_TRUE(stop.requested());
}

}  // namespace
}  // namespace isotrain::test
