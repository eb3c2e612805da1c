// The bits of attention: what its text says, on every instruction set, whatever the call looks like.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "lib/base/error.h"
#include "tests/kernels/attention/definition.h"
#include "tests/kernels/attention/support.h"

namespace isotrain::kernels::test {
namespace {

constexpr Case cases[] = {
    {"one token", 1, 1, 1, 1, 32, 32},
    {"two tokens, ragged widths", 1, 2, 2, 1, 5, 3},
    {"one less than a panel", 2, 15, 2, 2, 16, 16},
    {"a panel", 1, 16, 1, 1, 17, 33},
    {"one more than a panel", 1, 17, 3, 1, 48, 32},
    {"one less than a block of query rows", 1, 63, 2, 1, 32, 48},
    {"a block of query rows", 1, 64, 1, 1, 64, 64},
    {"one more than a block of query rows", 1, 65, 2, 2, 7, 64},
    {"between blocks", 2, 100, 4, 2, 96, 64},
    {"several blocks of keys", 1, 257, 2, 1, 33, 20},
};

std::vector<Isa> instruction_sets() {
  std::vector<Isa> usable;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    try {
      Cpu const at(1, Bf16Class::tiles, isa);
      usable.push_back(isa);
    } catch (UsageError const&) {
    }
  }
  return usable;
}

/// Leaves the process at the best instruction set after each test.
class RestoreIsa {
 protected:
  ~RestoreIsa() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};
class AttentionBits : public testing::TestWithParam<Case>, RestoreIsa {};
class AttentionInvariance : public testing::Test, RestoreIsa {};

template <class T>
void expect_definition(Case c, Bf16Class bf16, Sum sum) {
  Attention<T> defined(c);
  define(defined, sum);
  for (Isa isa : instruction_sets()) {
    Cpu const at(1, bf16, isa);
    Attention<T> run(c);
    run.forward(at);
    run.backward(at);
    EXPECT_EQ(first_difference(run, defined), "") << isa_name() << ", " << c.edge;
  }
}

TEST_P(AttentionBits, AreTheDefinitionInFloat) {
  expect_definition<float>(GetParam(), Bf16Class::tiles, Sum::chain);
}
TEST_P(AttentionBits, AreTheDefinitionInTiles) {
  expect_definition<bfloat16>(GetParam(), Bf16Class::tiles, Sum::tiles);
}
TEST_P(AttentionBits, AreTheDefinitionInPairs) {
  expect_definition<bfloat16>(GetParam(), Bf16Class::pairs, Sum::pairs);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AttentionBits, testing::ValuesIn(cases));

template <class T>
void expect_invariance(Bf16Class bf16) {
  Case const c{"", 3, 100, 4, 2, 96, 64};
  Attention<T> plain(c);
  plain.forward(Cpu(1, bf16));
  plain.backward(Cpu(1, bf16));

  Attention<T> strided(c, 3);
  strided.forward(Cpu(3, bf16));
  strided.backward(Cpu(2, bf16));
  EXPECT_EQ(first_difference(strided, plain), "") << "strides and threads";
  for (auto const* output : {&strided.o, &strided.dq, &strided.dk, &strided.dv}) EXPECT_TRUE(output->gaps_untouched());

  Attention<T> many_threads(c);
  many_threads.forward(Cpu(16, bf16));
  many_threads.backward(Cpu(16, bf16));
  EXPECT_EQ(first_difference(many_threads, plain), "") << "more threads than heads";

  for (std::int64_t sample = 0; sample < c.B; ++sample) {
    Attention<T> alone({"", 1, c.T, c.H, c.G, c.dq, c.dv});
    Attention<T> part({"", 1, c.T, c.H, c.G, c.dq, c.dv});
    auto copy = [&](HeadStore<T> const& to, HeadStore<T> const& from) {
      for (std::int64_t r = 0; r < c.T; ++r) {
        for (std::int64_t h = 0; h < to.view().heads; ++h) {
          std::copy_n(from.view().at(sample * c.T + r, h), to.view().dim, to.view().at(r, h));
        }
      }
    };
    copy(alone.q, plain.q), copy(alone.k, plain.k), copy(alone.v, plain.v), copy(alone.go, plain.go);
    alone.forward(Cpu(1, bf16));
    alone.backward(Cpu(1, bf16));
    copy(part.o, plain.o), copy(part.dq, plain.dq), copy(part.dk, plain.dk), copy(part.dv, plain.dv);
    std::copy_n(plain.lse.begin() + sample * c.H * c.T, c.H * c.T, part.lse.begin());
    EXPECT_EQ(first_difference(alone, part), "") << "sample " << sample << " alone";
  }
}

TEST_F(AttentionInvariance, NeitherThreadsNorStridesNorSamplesMatter) {
  expect_invariance<float>(Bf16Class::tiles);
  expect_invariance<bfloat16>(Bf16Class::tiles);
  expect_invariance<bfloat16>(Bf16Class::pairs);
}

/// Rows of a shorter sequence, and each row decoded from a cache, are the rows of the long one.
template <class T>
void expect_causality(Bf16Class bf16) {
  Case const c{"", 1, 150, 4, 2, 48, 32};
  Cpu const at(2, bf16);
  Attention<T> whole(c);
  whole.forward(at);
  auto rows = [&](Attention<T> const& x, std::int64_t first, std::int64_t count) {
    std::vector<T> elements;
    for (std::int64_t t = first; t < first + count; ++t) {
      for (std::int64_t h = 0; h < c.H; ++h)
        elements.insert(elements.end(), x.o.view().at(t, h), x.o.view().at(t, h) + c.dv);
    }
    return elements;
  };
  for (std::int64_t length : {1, 15, 16, 17, 64, 65, 128, 129}) {
    Attention<T> prefix({"", 1, length, c.H, c.G, c.dq, c.dv});
    prefix.forward(at);
    EXPECT_EQ(first_difference(rows(prefix, 0, length), rows(whole, 0, length)), "") << "first " << length << " tokens";
  }
  auto first_rows = [](Heads<T const> x, std::int64_t count) {
    x.rows = count;
    return x;
  };
  for (Isa isa : instruction_sets()) {
    Cpu const forced(1, bf16, isa);
    for (std::int64_t t = 0; t < c.T; t += t < 70 ? 1 : 13) {
      HeadStore<T> o(1, c.H, c.dv);
      Heads<T const> const q{whole.q.view().at(t, 0), 1, c.H, c.dq, c.H * c.dq, c.dq};
      attention_decode<T>(forced, o.view(), q, first_rows(whole.k.read(), t + 1), first_rows(whole.v.read(), t + 1),
                          whole.shape.scale);
      EXPECT_EQ(first_difference(o.elements(), rows(whole, t, 1)), "") << "token " << t << " on " << isa_name();
    }
  }
}

TEST_F(AttentionInvariance, RowsDependOnTheirPastOnly) {
  expect_causality<float>(Bf16Class::tiles);
  expect_causality<bfloat16>(Bf16Class::tiles);
  expect_causality<bfloat16>(Bf16Class::pairs);
}

/// Scores too long for blocks of 64 rows: smaller blocks, the same bits.
TEST_F(AttentionInvariance, TheBlockOfQueryRowsDoesNotMatter) {
  Case const c{"", 1, 9000, 1, 1, 4, 4};
  Cpu const at;
  Attention<float> whole(c), prefix({"", 1, 1000, 1, 1, 4, 4});
  whole.forward(at);
  prefix.forward(at);
  auto elements = whole.o.elements();
  elements.resize(1000 * 4);
  EXPECT_EQ(first_difference(elements, prefix.o.elements()), "");
}

TEST_F(AttentionInvariance, AnotherSumIsSeen) {
  Case const c{"", 1, 100, 1, 1, 64, 64};
  Attention<bfloat16> tiles(c), pairs(c);
  tiles.forward(Cpu(1, Bf16Class::tiles));
  pairs.forward(Cpu(1, Bf16Class::pairs));
  EXPECT_NE(first_difference(tiles.lse, pairs.lse), "") << "the comparison must be able to see another order";
  Attention<float> chain(c), other(c);
  chain.forward(Cpu());
  define(other, Sum::tiles);
  EXPECT_NE(first_difference(chain, other), "");
}

}  // namespace
}  // namespace isotrain::kernels::test
