#include "lib/train/progress.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "lib/base/digest.h"
#include "lib/base/setting_value.h"
#include "lib/base/unique.h"

namespace isotrain {
namespace {

int columns_of(int file) {
  winsize size = {};
  return ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void close_file(int file) {
  close(file);
}

std::string format(char const* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

/// "950", "12.3k", "4.56M": three digits.
std::string format_rate(double value) {
  char const* const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1000;
  return format(value >= 99.95 || unit == 0 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f", value) + units[unit];
}

}  // namespace

int terminal_columns() {
  if (!isatty(STDOUT_FILENO)) return 0;
  if (int const columns = columns_of(STDOUT_FILENO); columns > 0) return columns;
  std::string const parent = "/proc/" + std::to_string(getppid()) + "/fd/1";
  Unique<int, close_file, -1> const file(open(parent.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  return file ? columns_of(file.get()) : 0;
}

std::string format_duration(double seconds) {
  // A run that would take longer is shown as this long.
  auto const total = static_cast<std::int64_t>(std::clamp(seconds + 0.5, 0.0, 1e9));
  char text[32];
  auto const part = [](std::int64_t value) { return static_cast<long long>(value); };
  if (total >= 86400) {
    std::snprintf(text, sizeof text, "%lldd %02lld:%02lld:%02lld", part(total / 86400), part(total / 3600 % 24),
                  part(total / 60 % 60), part(total % 60));
  } else if (total >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", part(total / 3600), part(total / 60 % 60), part(total % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", part(total / 60), part(total % 60));
  }
  return text;
}

std::string progress_text(Progress::Status const& status, std::int64_t steps) {
  std::string text = "step " + std::to_string(status.step) + "/" + std::to_string(steps) + "  loss " +
                     format("%.4f", status.loss) + "  " + format_rate(status.tokens_per_s) + " tokens/s";
  if (status.mfu > 0) text += "  MFU " + format("%.1f", 100 * status.mfu) + " %";
  if (status.seconds_left >= 0) text += "  left " + format_duration(status.seconds_left);
  return text;
}

void Progress::show(Status const& status) {
  std::string text = progress_text(status, settings_.steps);
  if (settings_.columns > 0) {
    // The last column stays free: a full line would make some terminals wrap.
    text.resize(std::min(text.size(), static_cast<std::size_t>(settings_.columns - 1)));
    out_ << "\r\x1b[K" << text << std::flush;
    on_line_ = true;
  } else if (!shown_ || status.step == settings_.steps ||
             status.step % std::max<std::int64_t>(settings_.every, 1) == 0) {
    out_ << text << std::endl;
  }
  shown_ = true;
}

void Progress::line(std::string const& text) {
  clear();
  out_ << text << std::endl;
}

void Progress::done(std::int64_t step, std::int64_t tokens, double loss, std::uint64_t fingerprint) {
  // What the progress line says last stays visible above.
  if (on_line_) out_ << "\n";
  on_line_ = false;
  out_ << "done step=" << step << " tokens=" << tokens << " loss=" << format_value(loss)
       << " fingerprint=" << to_hex(fingerprint) << std::endl;
}

void Progress::clear() {
  if (on_line_) out_ << "\r\x1b[K";
  on_line_ = false;
}

}  // namespace isotrain
