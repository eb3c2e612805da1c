#include "lib/optim/batch_ramp.h"

#include <algorithm>
#include <string>

#include "lib/base/error.h"

namespace isotrain {
namespace {

void check_multiple(std::string const& setting, std::int64_t batch, std::int64_t multiple) {
  if (batch % multiple == 0) return;
  std::int64_t const below = batch / multiple * multiple;
  std::string const above = std::to_string(below + multiple);
  throw UsageError(setting + " = " + std::to_string(batch) + " cannot be divided evenly",
                   "it must be a multiple of " + std::to_string(multiple) + ", the lanes times the micro-batch",
                   "use " + (below > 0 ? std::to_string(below) + " or " + above : above));
}

}  // namespace

BatchRamp::BatchRamp(Settings const& settings) : settings_(settings) {
  expects(settings.multiple >= 1 && settings.sequence >= 1, "a positive batch granularity and sequence length");
  if (settings.full < 1) {
    throw UsageError("--train.global_batch = " + std::to_string(settings.full) + " is not a batch",
                     "it must be at least 1");
  }
  if (settings.start < 0 || settings.ramp_tokens < 0) {
    throw UsageError("the batch ramp has a negative size",
                     "--train.ramp_batch = " + std::to_string(settings.start) +
                         ", --train.ramp_tokens = " + std::to_string(settings.ramp_tokens));
  }
  check_multiple("--train.global_batch", settings.full, settings.multiple);
  if ((settings.start == 0) != (settings.ramp_tokens == 0)) {
    throw UsageError("half a batch ramp is given",
                     "--train.ramp_batch = " + std::to_string(settings.start) +
                         ", --train.ramp_tokens = " + std::to_string(settings.ramp_tokens),
                     "give both or neither");
  }
  if (settings.start == 0) return;
  check_multiple("--train.ramp_batch", settings.start, settings.multiple);
  if (settings.start > settings.full) {
    throw UsageError("the batch ramp goes down",
                     "--train.ramp_batch = " + std::to_string(settings.start) +
                         " is above --train.global_batch = " + std::to_string(settings.full));
  }
}

std::int64_t BatchRamp::sequences(std::int64_t tokens_before) const {
  expects(tokens_before >= 0, "tokens_before >= 0");
  auto const& [start, full, ramp_tokens, multiple, sequence] = settings_;
  if (tokens_before >= ramp_tokens) return full;
  // Whole multiples, so that the product stays far from overflow for any real run: (full / multiple) * tokens.
  std::int64_t const rise = (full - start) / multiple;
  return start + rise * tokens_before / ramp_tokens * multiple;
}

std::int64_t BatchRamp::tokens_after(std::int64_t steps) const {
  expects(steps >= 0, "steps >= 0");
  std::int64_t tokens = 0;
  std::int64_t step = 0;
  for (; step < steps && tokens < settings_.ramp_tokens; ++step) tokens += sequences(tokens) * settings_.sequence;
  return tokens + (steps - step) * settings_.full * settings_.sequence;
}

}  // namespace isotrain
