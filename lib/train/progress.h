#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace isotrain {

/// Columns of the terminal that standard output goes to, or 0 if it goes elsewhere. Sees through the pseudo-terminal
/// that Open MPI puts in between (which has no size) when mpirun runs on the same host.
int terminal_columns();

/// What a user sees of a running training, on rank 0.
class Progress {
 public:
  struct Settings {
    std::int64_t steps = 0;  // of the run
    std::int64_t every = 1;  // steps from one plain line to the next
    int columns = 0;         // of the terminal; 0: plain lines
  };
  struct Status {
    std::int64_t step = 0;
    double loss = 0;
    double tokens_per_s = 0;
    double mfu = 0;           // 0 to 1; 0: not known, not shown
    double seconds_left = 0;  // negative: not known
  };

  Progress(std::ostream& out, Settings const& settings) : out_(out), settings_(settings) {}

  /// On a terminal rewrites the progress line; otherwise writes a line if the step is a multiple of `every`, the first
  /// one shown or the last one of the run.
  void show(Status const& status);
  /// Writes a line of its own: the progress line makes room and comes back with the next step.
  void line(std::string const& text);
  /// `done step=S tokens=T loss=L fingerprint=H`: the last line of every run.
  void done(std::int64_t step, std::int64_t tokens, double loss, std::uint64_t fingerprint);

 private:
  void clear();

  std::ostream& out_;
  Settings settings_;
  bool shown_ = false;    // something has been shown
  bool on_line_ = false;  // the cursor is in a progress line
};

/// "step 120/2000  loss 2.3456  12.3k tokens/s  MFU 41.2 %  left 1:23:45".
std::string progress_text(Progress::Status const& status, std::int64_t steps);

/// "0:42", "12:05", "1:02:03", "3d 04:05:06"; rounded to the nearest second.
std::string format_duration(double seconds);

}  // namespace isotrain
