#include "lib/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <ranges>

#include "kernels/adamw.h"
#include "kernels/reduce.h"
#include "lib/base/error.h"
#include "lib/base/exact_sum.h"
#include "lib/base/setting_value.h"

namespace isotrain {
namespace {

void check(bool good, std::string const& setting, double value, std::string const& why) {
  if (!good) throw UsageError(setting + " = " + format_value(value) + " is out of range", why);
}

std::int64_t elements(std::vector<FlatRange> const& own) {
  std::int64_t total = 0;
  for (FlatRange const& run : own) total += run.size();
  return total;
}

/// What lies in one piece of a run of own elements. A gap belongs to the piece before it.
struct Stretch {
  Piece const* piece = nullptr;
  std::int64_t begin = 0;  // in the flat space
  std::int64_t end = 0;
  std::int64_t own_begin = 0;  // among the own elements
};

/// All own elements, ascending.
std::vector<Stretch> stretches(ParameterTable const& table, std::vector<FlatRange> const& own) {
  std::vector<Stretch> result;
  std::int64_t last = 0;
  std::int64_t own_begin = 0;
  for (FlatRange const& run : own) {
    expects(run.begin >= last && run.begin <= run.end && run.end <= table.flat_size(), "ascending, disjoint runs");
    expects(run.begin % block_elements == 0 && run.end % block_elements == 0, "runs of whole blocks");
    last = run.end;
    for (std::int64_t begin = run.begin; begin < run.end;) {
      Piece const& piece = table.at(begin);
      std::int64_t const end = std::min(run.end, piece.end());
      result.push_back({&piece, begin, end, own_begin});
      own_begin += end - begin;
      begin = end;
    }
  }
  return result;
}

}  // namespace

OptimizerBuffers OptimizerBuffers::plan(BufferPlan& plan, std::vector<FlatRange> const& own) {
  std::int64_t const size = elements(own);
  return {plan.add<float>("optimizer", "master weights", size), plan.add<float>("optimizer", "first moment", size),
          plan.add<float>("optimizer", "second moment", size)};
}

bool AdamW::StepResult::finite() const {
  return std::isfinite(gradient_norm);
}

AdamW::AdamW(Settings const& settings, ParameterTable const& table, std::vector<FlatRange> const& own)
    : settings_(settings), num_blocks_(table.num_blocks()), size_(static_cast<std::size_t>(elements(own))) {
  check(settings.beta1 >= 0 && static_cast<float>(settings.beta1) < 1, "--optim.beta1", settings.beta1,
        "it must be from 0 to below 1");
  check(settings.beta2 >= 0 && static_cast<float>(settings.beta2) < 1, "--optim.beta2", settings.beta2,
        "it must be from 0 to below 1");
  check(settings.epsilon > 0 && settings.epsilon <= 1, "--optim.epsilon", settings.epsilon,
        "it must be above 0 and at most 1");
  check(settings.weight_decay >= 0 && settings.weight_decay <= 1e6, "--optim.weight_decay", settings.weight_decay,
        "it must be 0 or more");
  check(settings.clip >= 0 && std::isfinite(settings.clip), "--optim.clip", settings.clip,
        "it must be 0 (no clipping) or more");
  // Zeros in gaps stay zeros, so they need no parts of their own.
  for (Stretch const& stretch : stretches(table, own)) {
    bool const decay = table.parameter(*stretch.piece).decay;
    auto const size = static_cast<std::size_t>(stretch.end - stretch.begin);
    if (parts_.empty() || parts_.back().decay != decay) {
      parts_.push_back({static_cast<std::size_t>(stretch.own_begin), size, decay});
    } else {
      parts_.back().size += size;
    }
  }
}

double AdamW::gradient_norm(Cpu const& at, Communicator const& ranks, std::span<float const> gradient) const {
  std::array<double, 1024> buffer;
  ExactSum sum;
  for (std::size_t begin = 0; begin < gradient.size();) {
    auto const piece =
        gradient.subspan(begin, std::min<std::size_t>(buffer.size() * block_elements, gradient.size() - begin));
    auto const sums = std::span(buffer).first(piece.size() / block_elements);
    kernels::block_sums_of_squares(at, sums, piece, block_elements);
    for (double const of_block : sums) sum.add(of_block);
    begin += piece.size();
  }
  ranks.sum(sum.words());
  return std::sqrt(sum.value());
}

AdamW::StepResult AdamW::step(Cpu const& at, Communicator const& ranks, std::int64_t step, double learning_rate,
                              OptimizerState const& state, std::span<float const> gradient) {
  expects(step >= 1, "step >= 1");
  expects(
      gradient.size() == size_ && state.weight.size() == size_ && state.m.size() == size_ && state.v.size() == size_,
      "spans of the own elements");
  expects(ranks.sum(static_cast<std::int64_t>(size_)) == num_blocks_ * block_elements, "an owner of each block");

  StepResult result{.gradient_norm = gradient_norm(at, ranks, gradient)};
  if (!result.finite()) return result;
  if (settings_.clip > 0 && result.gradient_norm > settings_.clip) {
    result.clip_scale = static_cast<float>(settings_.clip / result.gradient_norm);
  }

  kernels::AdamwStep const decaying =
      kernels::adamw_step(step, {settings_.beta1, settings_.beta2, settings_.epsilon, settings_.weight_decay},
                          learning_rate, result.clip_scale);
  kernels::AdamwStep plain = decaying;
  plain.decay = 0;
  for (Part const& part : parts_) {
    auto const of = [&](auto values) { return values.subspan(part.begin, part.size); };
    kernels::adamw(at, of(state.weight), of(state.m), of(state.v), of(gradient), {}, part.decay ? decaying : plain);
  }
  return result;
}

std::optional<NonFinite> find_non_finite(Cpu const& at, Communicator const& ranks, ParameterTable const& table,
                                         std::vector<FlatRange> const& own, std::span<float const> gradient) {
  expects(static_cast<std::int64_t>(gradient.size()) == elements(own), "a gradient of the own elements");
  std::int64_t mine = -1;
  std::int64_t element = std::numeric_limits<std::int64_t>::max();
  for (Stretch const& stretch : std::views::reverse(stretches(table, own))) {
    auto const parameter = static_cast<std::int64_t>(stretch.piece->parameter);
    if (parameter < mine) break;
    auto const part = gradient.subspan(static_cast<std::size_t>(stretch.own_begin),
                                       static_cast<std::size_t>(stretch.end - stretch.begin));
    if (std::int64_t const index = kernels::first_non_finite(at, part); index >= 0) {
      std::int64_t const found = element_of(table.parameter(*stretch.piece), *stretch.piece, stretch.begin + index);
      element = parameter == mine ? std::min(element, found) : found;
      mine = parameter;
    }
  }
  std::int64_t const last = ranks.max(mine);
  if (last < 0) return std::nullopt;
  // A parameter may lie on several ranks.
  std::int64_t const first_element = ranks.min(mine == last ? element : std::numeric_limits<std::int64_t>::max());
  return NonFinite{table.all()[static_cast<std::size_t>(last)].name, first_element};
}

}  // namespace isotrain
