#include "lib/train/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <sstream>
#include <string>

namespace isotrain::test {
namespace {

Progress::Status status_of(std::int64_t step) {
  return {.step = step, .loss = 2.34567, .tokens_per_s = 12345, .mfu = 0.412, .seconds_left = 5025};
}

TEST(Duration, IsShortAndRounded) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(41.6), "0:42");
  EXPECT_EQ(format_duration(59.5), "1:00");
  EXPECT_EQ(format_duration(725), "12:05");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600 + 5 * 60 + 6), "3d 04:05:06");
  EXPECT_EQ(format_duration(-5), "0:00");
  EXPECT_EQ(format_duration(1e300), format_duration(1e9));
}

TEST(ProgressText, HoldsWhatIsKnown) {
  EXPECT_EQ(progress_text(status_of(120), 2000),
            "step 120/2000  loss 2.3457  12.3k tokens/s  MFU 41.2 %  left 1:23:45");
  EXPECT_EQ(progress_text({.step = 1, .loss = 10, .tokens_per_s = 950, .seconds_left = -1}, 5),
            "step 1/5  loss 10.0000  950 tokens/s");
  EXPECT_EQ(progress_text({.step = 1, .loss = std::nan(""), .tokens_per_s = 4.5678e6, .seconds_left = -1}, 5),
            "step 1/5  loss nan  4.57M tokens/s");
}

TEST(ProgressText, RatesHaveThreeDigitsAtEveryEdge) {
  auto const rate = [](double value) {
    std::string const text = progress_text({.step = 1, .tokens_per_s = value, .seconds_left = -1}, 1);
    return text.substr(text.find("0000") + 6);
  };
  EXPECT_EQ(rate(999.4), "999 tokens/s");
  EXPECT_EQ(rate(999.5), "1.00k tokens/s");
  EXPECT_EQ(rate(9994), "9.99k tokens/s");
  EXPECT_EQ(rate(9996), "10.0k tokens/s");
  EXPECT_EQ(rate(99960), "100k tokens/s");
  EXPECT_EQ(rate(999600), "1.00M tokens/s");
  EXPECT_EQ(rate(2e16), "20000T tokens/s");
}

TEST(Progress, WritesPlainLinesIntoALog) {
  std::ostringstream out;
  Progress progress(out, {.steps = 11, .every = 4});
  for (std::int64_t step = 2; step <= 11; ++step) progress.show({.step = step, .tokens_per_s = 1, .seconds_left = -1});
  EXPECT_EQ(out.str(),
            "step 2/11  loss 0.0000  1 tokens/s\n"
            "step 4/11  loss 0.0000  1 tokens/s\n"
            "step 8/11  loss 0.0000  1 tokens/s\n"
            "step 11/11  loss 0.0000  1 tokens/s\n");
}

TEST(Progress, RewritesOneLineOnATerminal) {
  std::ostringstream out;
  Progress progress(out, {.steps = 9, .every = 4, .columns = 80});
  progress.show({.step = 1, .tokens_per_s = 1, .seconds_left = -1});
  progress.show({.step = 2, .tokens_per_s = 1, .seconds_left = -1});
  progress.line("evaluated: loss 3");
  progress.line("checkpoint written");
  progress.show({.step = 3, .tokens_per_s = 1, .seconds_left = -1});
  progress.done(3, 96, 2.5, 0xab);
  EXPECT_EQ(out.str(),
            "\r\x1b[Kstep 1/9  loss 0.0000  1 tokens/s"
            "\r\x1b[Kstep 2/9  loss 0.0000  1 tokens/s"
            "\r\x1b[Kevaluated: loss 3\n"
            "checkpoint written\n"
            "\r\x1b[Kstep 3/9  loss 0.0000  1 tokens/s\n"
            "done step=3 tokens=96 loss=2.5 fingerprint=00000000000000ab\n");
}

TEST(Progress, FitsTheTerminal) {
  std::ostringstream out;
  Progress progress(out, {.steps = 9, .columns = 12});
  progress.show(status_of(1));
  EXPECT_EQ(out.str(), "\r\x1b[Kstep 1/9  l");
}

TEST(Progress, DoneIsOneParsableLine) {
  std::ostringstream out;
  Progress(out, {.steps = 3}).done(3, 1234567890123, 1.0 / 3, 0x0123456789abcdef);
  EXPECT_EQ(out.str(), "done step=3 tokens=1234567890123 loss=0.3333333333333333 fingerprint=0123456789abcdef\n");
}

/// Makes a pseudo-terminal with this many columns the standard output of this process.
void write_to_terminal(unsigned short columns) {
  int controller = 0;
  int terminal = 0;
  winsize const size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  if (openpty(&controller, &terminal, nullptr, nullptr, &size) != 0) _exit(250);
  dup2(terminal, STDOUT_FILENO);
}

void write_to_file() {
  dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
}

/// What terminal_columns() says in a child with the standard output that `redirect` makes.
int columns_in_child(std::function<void()> const& redirect) {
  pid_t const child = fork();
  if (child == 0) {
    redirect();
    _exit(terminal_columns());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

/// The same in a grandchild: its parent stands for mpirun.
int columns_in_grandchild(std::function<void()> const& redirect_parent, std::function<void()> const& redirect) {
  pid_t const child = fork();
  if (child == 0) {
    redirect_parent();
    _exit(columns_in_child(redirect));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(Terminal, HasItsOwnColumns) {
  EXPECT_EQ(columns_in_child([] { write_to_terminal(77); }), 77);
  EXPECT_EQ(columns_in_child(write_to_file), 0);
}

TEST(Terminal, IsSeenBehindOneWithoutASize) {
  EXPECT_EQ(columns_in_grandchild([] { write_to_terminal(77); }, [] { write_to_terminal(0); }), 77);
  EXPECT_EQ(columns_in_grandchild(write_to_file, [] { write_to_terminal(0); }), 0);
  EXPECT_EQ(columns_in_grandchild([] { write_to_terminal(77); }, write_to_file), 0);
}

}  // namespace
}  // namespace isotrain::test
