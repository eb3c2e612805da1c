#include "tests/app/layout_runs.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace isotrain::test {
namespace {

constexpr double timeout_s = 300;

}  // namespace

std::vector<TinyWorld::Step> LayoutRuns::steps(Layout const& layout, std::vector<std::string> const& more) {
  auto settings = layout.arguments();
  // 18 tokens: the slices of a sequence are not of one length.
  settings.insert(settings.end(), {"--train.sequence", "18", "--train.steps", std::to_string(steps_)});
  settings.insert(settings.end(), more.begin(), more.end());
  auto const result = run(mpirun(layout.ranks(), world_.train(layout.model, "layout", settings)), {}, timeout_s);
  std::vector<TinyWorld::Step> steps;
  if (result.exit_code == 0) steps = world_.steps("layout");
  std::filesystem::remove_all(world_ / "layout");
  if (result.exit_code != 0) {
    throw std::runtime_error("exit code " + std::to_string(result.exit_code) + ": " + result.err);
  }
  return steps;
}

std::vector<TinyWorld::Step> const& LayoutRuns::expected(std::string const& model, std::string const& precision) {
  auto const found = expected_.find({model, precision});
  if (found != expected_.end()) return found->second;
  auto made = steps({.model = model, .precision = precision});
  if (made.size() != static_cast<std::size_t>(steps_)) throw std::runtime_error("one rank made too few steps");
  if (!(made.back().loss < made.front().loss)) throw std::runtime_error("one rank did not learn");
  return expected_[{model, precision}] = std::move(made);
}

std::string LayoutRuns::difference(Layout const& layout, std::vector<std::string> const& more) {
  auto const& expected = this->expected(layout.model, layout.precision);
  std::vector<TinyWorld::Step> steps;
  try {
    steps = this->steps(layout, more);
  } catch (std::runtime_error const& error) {
    return error.what();
  }
  auto const [mine, other] = std::ranges::mismatch(steps, expected);
  std::ostringstream text;
  if (mine != steps.end() && other != expected.end()) {
    text << *mine << ", but on one rank " << *other;
  } else if (steps.size() != expected.size()) {
    text << steps.size() << " steps, but on one rank " << expected.size();
  }
  return text.str();
}

}  // namespace isotrain::test
