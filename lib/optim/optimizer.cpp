#include "lib/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/adamw.h"
#include "kernels/reduce.h"
#include "lib/base/error.h"
#include "lib/base/setting_value.h"

namespace isotrain {
namespace {

void check(bool good, std::string const& setting, double value, std::string const& why) {
  if (!good) throw UsageError(setting + " = " + format_value(value) + " is out of range", why);
}

std::int64_t blocks(FlatRange range) {
  return range.size() / block_elements;
}

}  // namespace

OptimizerBuffers OptimizerBuffers::plan(BufferPlan& plan, ParameterTable const& table, FlatRange range) {
  return {plan.add<float>("optimizer", "master weights", range.size()),
          plan.add<float>("optimizer", "first moment", range.size()),
          plan.add<float>("optimizer", "second moment", range.size()),
          plan.add<double>("optimizer", "sums of squares", table.num_blocks())};
}

bool AdamW::StepResult::finite() const {
  return std::isfinite(gradient_norm);
}

AdamW::AdamW(Settings const& settings, ParameterTable const& table, FlatRange range, std::span<double> block_sums)
    : settings_(settings), table_(table), range_(range), block_sums_(block_sums) {
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
  expects(static_cast<std::int64_t>(block_sums.size()) == table.num_blocks(), "one sum for each block");
  expects(range.begin % block_elements == 0 && range.end % block_elements == 0, "a range of whole blocks");

  // A gap belongs to the parameter before it, so the runs cover the range; the zeros in it stay zeros.
  for (std::int64_t offset = range.begin; offset < range.end;) {
    Parameter const& parameter = table.at(offset);
    std::int64_t const length = (parameter.size() + block_elements - 1) / block_elements * block_elements;
    std::int64_t const end = std::min(range.end, parameter.offset + length);
    bool const matrix = parameter.segment == Segment::matrix;
    if (!runs_.empty() && runs_.back().decay == parameter.decay && runs_.back().matrix == matrix) {
      runs_.back().end = end - range.begin;
    } else {
      runs_.push_back({offset - range.begin, end - range.begin, parameter.decay, matrix});
    }
    offset = end;
  }
}

AdamW::StepResult AdamW::step(Cpu const& at, Communicator const& dp, std::int64_t step, double learning_rate,
                              OptimizerState const& state, std::span<float const> gradient,
                              std::span<bfloat16> compute) {
  auto const size = static_cast<std::size_t>(range_.size());
  FlatRange const expected = flat_range(table_, dp.size(), dp.rank());
  expects(step >= 1, "step >= 1");
  expects(range_.begin == expected.begin && range_.end == expected.end, "the range of this rank");
  expects(gradient.size() == size && state.weight.size() == size && state.m.size() == size && state.v.size() == size,
          "spans of the range's length");
  expects(compute.empty() || static_cast<std::int64_t>(compute.size()) == matrix_elements(),
          "weights of the range's matrices");

  std::vector<std::int64_t> counts;
  for (int r = 0; r < dp.size(); ++r) counts.push_back(blocks(flat_range(table_, dp.size(), r)));
  std::span<double> const mine = block_sums_.subspan(range_.begin / block_elements, blocks(range_));
  kernels::block_sums_of_squares(at, mine, gradient, block_elements);
  dp.all_gather<double>(mine, block_sums_, counts);
  double total = 0;
  for (double const sum : block_sums_) total += sum;

  StepResult result{.gradient_norm = std::sqrt(total)};
  if (!result.finite()) return result;
  if (settings_.clip > 0 && result.gradient_norm > settings_.clip) {
    result.clip_scale = static_cast<float>(settings_.clip / result.gradient_norm);
  }

  kernels::AdamwStep const decaying =
      kernels::adamw_step(step, {settings_.beta1, settings_.beta2, settings_.epsilon, settings_.weight_decay},
                          learning_rate, result.clip_scale);
  kernels::AdamwStep plain = decaying;
  plain.decay = 0;
  for (Run const& run : runs_) {
    std::size_t const begin = run.begin;
    std::size_t const count = run.end - run.begin;
    auto const rounded = run.matrix && !compute.empty() ? compute.subspan(begin, count) : std::span<bfloat16>();
    kernels::adamw(at, state.weight.subspan(begin, count), state.m.subspan(begin, count), state.v.subspan(begin, count),
                   gradient.subspan(begin, count), rounded, run.decay ? decaying : plain);
  }
  return result;
}

std::int64_t AdamW::matrix_elements() const {
  return std::max<std::int64_t>(std::min(range_.end, table_.matrix_size()) - range_.begin, 0);
}

std::vector<double> AdamW::parameter_norms() const {
  std::vector<double> norms;
  for (Parameter const& parameter : table_.all()) {
    std::int64_t const first = parameter.offset / block_elements;
    std::int64_t const last = (parameter.offset + parameter.size() + block_elements - 1) / block_elements;
    double total = 0;
    for (std::int64_t b = first; b < last; ++b) total += block_sums_[b];
    norms.push_back(std::sqrt(total));
  }
  return norms;
}

std::optional<NonFinite> find_non_finite(Cpu const& at, Communicator const& dp, ParameterTable const& table,
                                         FlatRange range, std::span<float const> gradient) {
  auto const& parameters = table.all();
  std::int64_t mine = -1;
  std::int64_t element = std::numeric_limits<std::int64_t>::max();
  for (auto i = static_cast<std::int64_t>(parameters.size()) - 1; i >= 0 && mine < 0; --i) {
    Parameter const& parameter = parameters[static_cast<std::size_t>(i)];
    std::int64_t const begin = std::max(parameter.offset, range.begin);
    std::int64_t const end = std::min(parameter.offset + parameter.size(), range.end);
    if (begin >= end) continue;
    auto const part =
        gradient.subspan(static_cast<std::size_t>(begin - range.begin), static_cast<std::size_t>(end - begin));
    if (std::int64_t const index = kernels::first_non_finite(at, part); index >= 0) {
      mine = i;
      element = begin + index - parameter.offset;
    }
  }
  std::int64_t const last = dp.max(mine);
  if (last < 0) return std::nullopt;
  // A parameter may lie on several ranks.
  std::int64_t const first_element = dp.min(mine == last ? element : std::numeric_limits<std::int64_t>::max());
  return NonFinite{parameters[static_cast<std::size_t>(last)].name, first_element};
}

}  // namespace isotrain
