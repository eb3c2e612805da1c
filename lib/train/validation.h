#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/tree.h"
#include "lib/comm/communicator.h"
#include "lib/data/window_reader.h"
#include "lib/model/options.h"

namespace isotrain {

/// One data-parallel rank's share of the first `num_windows` windows of a split, some micro-batches at a time. All
/// ranks go through the same number of micro-batches; a rank whose windows are through has some without samples. Losses
/// are summed in the order of the windows, so they are the same on any number of ranks.
class ValidationShare {
 public:
  /// `data`: the ranks that share the windows; outlives it, as do `windows`.
  ValidationShare(Communicator const& data, data::WindowTable& windows, std::int64_t num_windows,
                  ModelOptions const& options);

  /// Reads the next micro-batches. Collective over `all`, whose ranks take part in the passes; false if there are none
  /// left. Throws AgreedError if a window cannot be read.
  bool read(Communicator const& all);
  /// The micro-batches read, and where their losses go: sums over the tokens of each sample.
  int passes() const { return passes_; }
  Batch batch(int pass) const;
  std::span<double> loss(int pass);

  /// Of all windows of this rank.
  std::span<double> losses() { return losses_; }
  /// Mean loss per token, nats. Collective over the ranks that share the windows.
  double mean() const;

 private:
  IndexRange windows_of(int pass) const;

  Communicator const& data_;
  data::WindowTable& windows_;
  std::int64_t num_windows_;
  ModelOptions options_;
  IndexRange own_;
  std::int64_t total_passes_;  // of every rank
  std::int64_t first_pass_ = 0;
  int passes_ = 0;
  std::vector<std::int32_t> tokens_, targets_;
  std::vector<double> losses_;
};

}  // namespace isotrain
