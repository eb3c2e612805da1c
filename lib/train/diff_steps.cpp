#include "lib/train/diff_steps.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace isotrain {
namespace {

enum class Order { ascending, descending };

/// Looks through the tensors of one side of a step in the order of cause.
class SideOfStep {
 public:
  explicit SideOfStep(Side side) { found_.side = side; }

  void look(char const* prefix, std::vector<std::string> const& names, std::vector<std::uint64_t> const& first,
            std::vector<std::uint64_t> const& second, Order order) {
    for (std::size_t n = 0; n < names.size(); ++n) {
      std::size_t const i = order == Order::ascending ? n : names.size() - 1 - n;
      note(first[i], second[i], [&] { return prefix + names[i]; });
    }
  }
  template <class Name>
  void note(std::uint64_t first, std::uint64_t second, Name const& name) {
    if (first == second) return;
    if (differ_++ > 0) return;
    found_.what = name();
    found_.first = first;
    found_.second = second;
  }
  std::optional<TensorDifference> at(std::int64_t step) const {
    if (differ_ == 0) return std::nullopt;
    TensorDifference found = found_;
    found.step = step;
    found.others = differ_ - 1;
    return found;
  }

 private:
  TensorDifference found_;
  int differ_ = 0;
};

struct Metrics {
  std::string loss;
  std::string fingerprint;
  bool operator==(Metrics const&) const = default;
};

std::map<std::int64_t, Metrics> read_metrics(std::filesystem::path const& path) {
  std::map<std::int64_t, Metrics> steps;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    auto const object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) continue;
    auto const text = [&](char const* name) { return object.contains(name) ? object[name].dump() : "none"; };
    steps[object["step"]] = {text("loss"), text("fingerprint")};
  }
  return steps;
}

}  // namespace

char const* name_of(Side side) {
  return side == Side::forward ? "forward" : side == Side::backward ? "backward" : "update";
}

std::optional<TensorDifference> first_difference(LedgerHeader const& header, LedgerStep const& first,
                                                 LedgerStep const& second) {
  SideOfStep forward(Side::forward), backward(Side::backward), update(Side::update);
  forward.look("activation of ", header.layers, first.activation, second.activation, Order::ascending);
  backward.look("gradient of the activation of ", header.layers, first.activation_gradient, second.activation_gradient,
                Order::descending);
  backward.look("gradient of ", header.parameters, first.weight_gradient, second.weight_gradient, Order::descending);
  update.look("weight ", header.parameters, first.weight, second.weight, Order::ascending);
  if (!update.at(0)) update.note(first.fingerprint, second.fingerprint, [] { return "fingerprint of all weights"; });
  for (SideOfStep const* side : {&forward, &backward, &update}) {
    if (auto found = side->at(first.step)) return found;
  }
  return std::nullopt;
}

void StepRange::add(std::int64_t step) {
  if (count++ == 0) begin = step;
  end = step;
}

LedgerComparison compare_ledgers(std::filesystem::path const& first, std::filesystem::path const& second) {
  LedgerReader a(first), b(second);
  LedgerComparison comparison;
  comparison.same_model = a.header() == b.header();
  if (!comparison.same_model) return comparison;
  auto in_a = a.next(), in_b = b.next();
  while (in_a && in_b && !comparison.difference) {
    if (in_a->step < in_b->step) {
      in_a = a.next();
    } else if (in_b->step < in_a->step) {
      in_b = b.next();
    } else {
      comparison.compared.add(in_a->step);
      if (in_a->text != in_b->text) {
        comparison.difference = first_difference(a.header(), a.parse(*in_a), b.parse(*in_b));
      }
      in_a = a.next();
      in_b = b.next();
    }
  }
  return comparison;
}

MetricsComparison compare_metrics(std::filesystem::path const& first, std::filesystem::path const& second) {
  auto const a = read_metrics(first), b = read_metrics(second);
  MetricsComparison comparison;
  if (!a.empty()) comparison.first_last = a.rbegin()->first;
  if (!b.empty()) comparison.second_last = b.rbegin()->first;
  for (auto const& [step, in_a] : a) {
    auto const found = b.find(step);
    if (found == b.end()) continue;
    auto const& in_b = found->second;
    comparison.compared.add(step);
    if (in_a == in_b) continue;
    comparison.difference = {step, in_a.loss, in_b.loss, in_a.fingerprint, in_b.fingerprint};
    break;
  }
  return comparison;
}

}  // namespace isotrain
