// Trains every model of the tests on every layout that fits 8 ranks and compares each step with one rank: the whole of
// what layouts_test takes pairs from. Runs for hours; `--sample N` takes N layouts, drawn by `--seed`.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tests/app/layout_runs.h"

namespace isotrain::test {
namespace {

constexpr int num_steps = 20;

int check(std::vector<Layout> const& layouts) {
  LayoutRuns runs(num_steps);
  std::vector<std::string> failures;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    auto const start = std::chrono::steady_clock::now();
    std::string const difference = runs.difference(layouts[i]);
    double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("[%zu/%zu] %s: %s (%.1f s)\n", i + 1, layouts.size(), layouts[i].name().c_str(),
                difference.empty() ? "same bits" : difference.c_str(), seconds);
    std::fflush(stdout);
    if (!difference.empty()) failures.push_back(layouts[i].name());
  }
  std::printf("%zu of %zu layouts failed\n", failures.size(), layouts.size());
  for (auto const& name : failures) std::printf("  %s\n", name.c_str());
  return failures.empty() && !layouts.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace isotrain::test

int main(int argc, char** argv) try {
  using namespace isotrain::test;
  std::vector<Layout> layouts;
  for (auto const& [model, has_experts] : test_models) {
    auto const more = all_layouts(model, has_experts);
    layouts.insert(layouts.end(), more.begin(), more.end());
  }
  std::size_t count = layouts.size();
  unsigned seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string const option = argv[i];
    if (option == "--sample") count = std::stoul(argv[i + 1]);
    if (option == "--seed") seed = static_cast<unsigned>(std::stoul(argv[i + 1]));
  }
  return check(sample(std::move(layouts), count, seed));
} catch (std::exception const& error) {
  std::fprintf(stderr, "layout_matrix: %s\n", error.what());
  return EXIT_FAILURE;
}
