#include "lib/optim/schedule.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/portable_math.h"
#include "lib/base/setting_value.h"

namespace isotrain {
namespace {

template <class Value, std::size_t n>
Value choose(std::string const& setting, std::string const& name,
             std::array<std::pair<char const*, Value>, n> const& choices) {
  std::string all;
  for (auto const& [choice, value] : choices) {
    if (name == choice) return value;
    all += (all.empty() ? "" : ", ") + std::string(choice);
  }
  throw UsageError("unknown " + setting + " '" + name + "'", "choices: " + all);
}

/// Throws unless low <= value <= high; false for NaN.
void check_range(std::string const& setting, double value, double low, double high) {
  if (value >= low && value <= high) return;
  throw UsageError(setting + " = " + format_value(value) + " is out of range",
                   "it must be between " + format_value(low) + " and " + format_value(high));
}

/// Half a cosine wave from 1 at p = 0 to `floor` at p = 1.
double cosine(double p, double floor) {
  return floor + (1 - floor) * (0.5 * (1 + portable::cos(std::numbers::pi * p)));
}

}  // namespace

RunPlan plan_run(std::int64_t steps, BatchRamp const& batches, double warmup) {
  expects(steps >= 0, "steps >= 0");
  bool const fraction = warmup < 1;
  if (!(warmup >= 0 && warmup <= 0x1p53) || (!fraction && warmup != std::floor(warmup))) {
    throw UsageError("--optim.warmup = " + format_value(warmup) + " is no length of a warm-up",
                     "it must be a number of steps, or a fraction of the run from 0 to below 1");
  }
  RunPlan plan{.steps = steps, .tokens = batches.tokens_after(steps)};
  plan.warmup_steps =
      static_cast<std::int64_t>(fraction ? std::floor(warmup * static_cast<double>(steps) + 0.5) : warmup);
  plan.warmup_tokens = batches.tokens_after(plan.warmup_steps);
  return plan;
}

LearningRate::LearningRate(Settings const& settings, RunPlan const& plan) : settings_(settings), plan_(plan) {
  // The phases of v3 are compared as integers: 14800 * tokens must fit.
  expects(plan.tokens >= 0 && plan.tokens < 600'000'000'000'000 && plan.warmup_steps >= 0, "a plan of a run");
  using enum Schedule;
  schedule_ = choose("--optim.schedule", settings.schedule,
                     std::array<std::pair<char const*, Schedule>, 5>{
                         {{"constant", constant}, {"cosine", cosine}, {"step", step}, {"v3", v3}, {"wsd", wsd}}});
  shape_ = choose("--optim.decay_shape", settings.decay_shape,
                  std::array<std::pair<char const*, Shape>, 2>{{{"linear", Shape::linear}, {"sqrt", Shape::sqrt}}});
  check_range("--optim.lr", settings.peak, 0, 1e6);
  check_range("--optim.floor", settings.floor, 0, 1);
  check_range("--optim.step_first", settings.step_first, 0, 1);
  check_range("--optim.step_second", settings.step_second, settings.step_first, 1);
  check_range("--optim.step_factor", settings.step_factor, 0, 1);
  check_range("--optim.decay_fraction", settings.decay_fraction, 0, 1);
}

double LearningRate::at(std::int64_t step, std::int64_t tokens_before) const {
  expects(step >= 0 && tokens_before >= 0, "a step of a run");
  if (step <= plan_.warmup_steps && plan_.warmup_steps > 0) {
    return settings_.peak * (static_cast<double>(step) / static_cast<double>(plan_.warmup_steps));
  }
  return settings_.peak * share(tokens_before);
}

double LearningRate::share(std::int64_t tokens_before) const {
  std::int64_t const n = std::min(tokens_before, plan_.tokens);
  auto const tokens = static_cast<double>(plan_.tokens);
  switch (schedule_) {
    case Schedule::constant:
      return 1;
    case Schedule::cosine: {
      std::int64_t const length = plan_.tokens - plan_.warmup_tokens;
      if (length <= 0) return settings_.floor;
      return cosine(
          static_cast<double>(std::max<std::int64_t>(n - plan_.warmup_tokens, 0)) / static_cast<double>(length),
          settings_.floor);
    }
    case Schedule::step: {
      auto const x = static_cast<double>(n);
      if (x < settings_.step_first * tokens) return 1;
      if (x < settings_.step_second * tokens) return settings_.step_factor;
      return settings_.step_factor * settings_.step_factor;
    }
    case Schedule::v3: {
      // Tenths and thousandths of the published run's 14.8e12 tokens.
      if (148 * n <= 100 * plan_.tokens) return 1;
      if (148 * n <= 143 * plan_.tokens) {
        return cosine(static_cast<double>(148 * n - 100 * plan_.tokens) / static_cast<double>(43 * plan_.tokens), 0.1);
      }
      return 14800 * n <= 14633 * plan_.tokens ? 0.1 : 7.3 / 220;
    }
    case Schedule::wsd: {
      double const begin = (1 - settings_.decay_fraction) * tokens;
      double const length = settings_.decay_fraction * tokens;
      auto const x = static_cast<double>(n);
      if (x <= begin || length <= 0) return 1;
      double const p = std::min((x - begin) / length, 1.0);
      double const q = shape_ == Shape::linear ? p : std::sqrt(p);
      return settings_.floor + (1 - settings_.floor) * (1 - q);
    }
  }
  expects(false, "a known schedule");
  return 0;
}

}  // namespace isotrain
