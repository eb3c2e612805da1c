// Experts that data-parallel ranks share out have the bits of a rank with all of them: losses and loads of each
// source's own samples, and an expert's gradient for each source whose tokens it got, never scaled by their number.
#include <gtest/gtest.h>

#include "lib/comm/communicator.h"
#include "tests/lib/model/parts.h"

namespace isotrain::test {
namespace {

template <class T>
class ExpertParallel : public testing::Test {
 protected:
  /// On `tensor` tensor ranks for each source.
  std::string difference(Variant const& variant, std::int64_t sequence, std::vector<int> samples, int tensor,
                         int micro_batch = 2, Recompute recompute = Recompute::none, bool deferred = false) const {
    auto const config = tiny_config(variant.json);
    auto options = tiny_options(config, sequence, micro_batch);
    options.slices = 4;
    options.recompute = recompute;
    options.deferred_weights = deferred;
    int const data = world_.size() / tensor;
    samples.resize(static_cast<std::size_t>(data));
    Mesh const mesh(world_, {.tensor = tensor, .data = data, .expert = data});
    PartCase const test{config, options, sequence, samples};
    return PartRun<T>(test, mesh).difference();
  }
  std::vector<int> tensor_ranks() const { return world_.size() == 4 ? std::vector{1, 2} : std::vector{1}; }

  Communicator const world_ = Communicator::duplicate(MPI_COMM_WORLD);
};

using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(ExpertParallel, Types);

std::vector<Variant> with_experts() {
  auto result = variants_of_four_slices();
  std::erase_if(result, [](Variant const& variant) { return !variant.json.contains("n_routed_experts"); });
  return result;
}

TYPED_TEST(ExpertParallel, HasTheBitsOfOneRank) {
  for (int const tensor : this->tensor_ranks()) {
    for (auto const& variant : with_experts()) {
      EXPECT_EQ(this->difference(variant, 21, {3, 3, 3, 3}, tensor), "") << variant.name << ", tensor " << tensor;
    }
  }
}

/// With 5 and 1 samples in micro-batches of 2, the second source has one, then none.
TYPED_TEST(ExpertParallel, WithSourcesOfUnequalSamples) {
  for (int const tensor : this->tensor_ranks()) {
    for (auto const& variant : with_experts()) {
      for (auto const& samples : {std::vector{5, 1, 2, 0}, std::vector{0, 3, 1, 4}}) {
        EXPECT_EQ(this->difference(variant, 6, samples, tensor), "") << variant.name << ", tensor " << tensor;
      }
    }
  }
}

// Of 2 = 1 + 1 + 0 + 0 tokens the second of two tensor ranks has none.
TYPED_TEST(ExpertParallel, WithRanksWithoutTokens) {
  for (int const tensor : this->tensor_ranks()) {
    for (auto const& variant : with_experts()) {
      EXPECT_EQ(this->difference(variant, 2, {3, 1, 0, 2}, tensor), "") << variant.name << ", tensor " << tensor;
    }
  }
}

TYPED_TEST(ExpertParallel, WithRecomputationAndDeferredWeights) {
  for (int const tensor : this->tensor_ranks()) {
    for (auto const recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (bool const deferred : {false, true}) {
        for (auto const& variant : with_experts()) {
          if (variant.name != "v3" && variant.name != "v2_greedy") continue;
          EXPECT_EQ(this->difference(variant, 13, {2, 3, 1, 0}, tensor, 1, recompute, deferred), "")
              << variant.name << ", tensor " << tensor;
        }
      }
    }
  }
}

TYPED_TEST(ExpertParallel, NegativeControl) {
  auto const config = tiny_config(with(tiny_v3(), {{"num_attention_heads", 4}}));
  int const data = this->world_.size();
  Mesh const mesh(this->world_, {.data = data, .expert = data});
  PartCase const test{config, tiny_options(config, 13, 2), 13, std::vector<int>(static_cast<std::size_t>(data), 3)};
  PartRun<TypeParam> run(test, mesh);
  run.break_samples();
  EXPECT_NE(run.difference(), "");
}

/// Few tokens with one expert each: more of them meet on a rank than were foreseen.
TYPED_TEST(ExpertParallel, WithMoreRowsThanForeseen) {
  Variant const variant{"few experts", with(tiny_v3(), {{"num_attention_heads", 4},
                                                        {"n_routed_experts", 4},
                                                        {"num_experts_per_tok", 1},
                                                        {"n_group", 1},
                                                        {"topk_group", 1}})};
  EXPECT_EQ(this->difference(variant, 3, {1, 1, 1, 1}, 1, 1), "");
}

}  // namespace
}  // namespace isotrain::test
