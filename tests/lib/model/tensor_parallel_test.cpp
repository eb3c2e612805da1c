// A model whose slices and tokens are shared out over tensor-parallel ranks has the bits of the whole one: losses, and
// the gradients of what each rank holds. That of the latent projection with the rope key, which all ranks have and
// whose gradient all their heads add to, is one of them.
#include <gtest/gtest.h>

#include "lib/comm/communicator.h"
#include "tests/lib/model/parts.h"

namespace isotrain::test {
namespace {

template <class T>
class TensorParallel : public testing::Test {
 protected:
  std::string difference(Variant const& variant, std::int64_t sequence, Recompute recompute = Recompute::none,
                         bool deferred = false, int slices = 4) const {
    auto const config = tiny_config(variant.json);
    auto options = tiny_options(config, sequence, 2);
    options.slices = slices;
    options.recompute = recompute;
    options.deferred_weights = deferred;
    options.head_rows = 32;
    PartCase const test{config, options, sequence, {3}};
    return PartRun<T>(test, mesh_).difference();
  }

  Communicator const world_ = Communicator::duplicate(MPI_COMM_WORLD);
  Mesh const mesh_{world_, {.tensor = world_.size()}};
};

using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(TensorParallel, Types);

// 37 = 10 + 10 + 10 + 7.
TYPED_TEST(TensorParallel, HasTheBitsOfOneRank) {
  for (auto const& variant : variants_of_four_slices()) EXPECT_EQ(this->difference(variant, 37), "") << variant.name;
}

// Of 9 = 3 + 3 + 3 + 0 and of 2 = 1 + 1 + 0 + 0 tokens the last ranks have few or none.
TYPED_TEST(TensorParallel, WithRanksWithoutTokens) {
  for (std::int64_t const sequence : {9, 2, 1}) {
    for (auto const& variant : variants_of_four_slices()) {
      EXPECT_EQ(this->difference(variant, sequence), "") << variant.name << ", " << sequence << " tokens";
    }
  }
}

TYPED_TEST(TensorParallel, WithRecomputationAndDeferredWeights) {
  for (auto const& variant : variants_of_four_slices()) {
    if (variant.name != "v3" && variant.name != "v2_greedy" && variant.name != "llama_tied") continue;
    for (auto const recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (bool const deferred : {false, true}) {
        EXPECT_EQ(this->difference(variant, 13, recompute, deferred), "") << variant.name;
      }
    }
  }
}

TYPED_TEST(TensorParallel, WithAsManySlicesAsRanks) {
  for (auto const& variant : variants_of_four_slices()) {
    EXPECT_EQ(this->difference(variant, 13, Recompute::none, false, this->world_.size()), "") << variant.name;
  }
}

TYPED_TEST(TensorParallel, NegativeControl) {
  auto const config = tiny_config(with(tiny_v3(), {{"num_attention_heads", 4}}));
  auto options = tiny_options(config, 13, 2);
  options.slices = 4;
  PartCase const test{config, options, 13, {3}};
  PartRun<TypeParam> run(test, this->mesh_);
  run.break_samples();
  EXPECT_NE(run.difference(), "");
}

/// 23 words are padded to a multiple of the slices, whatever the ranks.
TYPED_TEST(TensorParallel, PadsTheVocabularyByTheEnvelope) {
  auto const config = tiny_config(tiny_llama());
  ASSERT_NE(config.vocab_size % 4, 0);
  ParameterTable const table(model_parameters(config), 4);
  Shard const shard = shard_of(table, config, {.tensor = this->world_.size() > 1 ? &this->mesh_.tensor() : nullptr});
  auto const pieces = shard["lm_head.weight"];
  auto const whole = table.pieces_of(table.parameter(*pieces.front().piece));
  EXPECT_EQ(pieces.size(), 4 / static_cast<std::size_t>(this->world_.size()));
  for (auto const& held : pieces)
    EXPECT_EQ(held.piece->end() - held.piece->offset, whole.front().end() - whole.front().offset);
}

}  // namespace
}  // namespace isotrain::test
