// Attention in bf16 tiles by AMX gives the bits of the widened forms, both ways, whatever the inputs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "lib/device/amx.h"
#include "lib/device/cpu.h"
#include "tests/kernels/attention/support.h"

namespace isotrain::kernels::test {
namespace {

using Bf16 = Attention<bfloat16>;

constexpr Case cases[] = {
    {"one less than a panel", 1, 31, 1, 1, 64, 64},
    {"a panel", 2, 32, 2, 2, 32, 32},
    {"one more than a panel", 1, 33, 2, 1, 96, 64},
    {"widths that fill no panel", 1, 70, 3, 1, 40, 24},
    {"widths of one element", 1, 40, 1, 1, 1, 1},
    {"one less than a block of rows", 1, 255, 1, 1, 64, 64},
    {"a block of rows, a chunk of keys", 2, 256, 4, 2, 96, 64},
    {"one more than a block of rows", 1, 257, 2, 1, 128, 128},
    {"one more than two chunks of keys", 1, 513, 1, 1, 192, 128},
    {"several of all", 1, 1100, 2, 1, 96, 64},
};

class AttentionAmx : public testing::Test {
 protected:
  void SetUp() override {
    if (!amx_granted()) GTEST_SKIP() << "AMX: this processor lacks it, or Linux does not grant it";
  }
  ~AttentionAmx() override {
    if (amx_granted()) Cpu(1, Bf16Class::tiles, Isa::amx);
  }
};

void run(Bf16& x, Isa isa, Bf16Class bf16 = Bf16Class::tiles) {
  Cpu const at(2, bf16, isa);
  EXPECT_EQ(amx_usable(), isa == Isa::amx);
  x.forward(at);
  x.backward(at);
}

TEST_F(AttentionAmx, HasTheBitsOfTheWidenedForms) {
  for (Case const& c : cases) {
    for (std::int64_t gap : {0, 3}) {
      Bf16 amx(c, gap);
      run(amx, Isa::amx);
      for (auto const* output : {&amx.o, &amx.dq, &amx.dk, &amx.dv}) EXPECT_TRUE(output->gaps_untouched()) << c.edge;
      for (Isa isa : {Isa::avx512, Isa::avx2}) {
        Bf16 widened(c, gap);
        run(widened, isa);
        EXPECT_EQ(first_difference(amx, widened), "") << c.edge << ", gaps of " << gap << ", against " << isa_name();
      }
    }
  }
}

/// Sets an element of each head of a token, a different one in each.
void set(HeadStore<bfloat16> const& x, std::int64_t token, float value) {
  for (std::int64_t h = 0; h < x.view().heads; ++h)
    x.at(token, h, (7 * token + 3 * h) % x.view().dim) = to_bfloat16(value);
}

TEST_F(AttentionAmx, FlushesSubnormalNumbersAsTheyDo) {
  Case const c{"", 1, 200, 2, 1, 96, 64};
  auto const fill = [](Bf16& x) {
    for (std::int64_t t = 0; t < x.c.T; t += 3) {
      for (auto const* input : {&x.q, &x.k, &x.v, &x.go}) set(*input, t, t % 2 == 0 ? 0x1p-130F : -0x1p-127F);
    }
    // Products, and sums, that are subnormal.
    for (std::int64_t t = 100; t < 110; ++t) {
      for (auto const* input : {&x.v, &x.go}) {
        for (std::int64_t h = 0; h < input->view().heads; ++h) {
          for (std::int64_t i = 0; i < input->view().dim; ++i)
            input->at(t, h, i) = to_bfloat16(i % 2 == 0 ? 0x1p-64F : -0x1p-125F);
        }
      }
    }
  };
  Bf16 amx(c), widened(c), scalar(c);
  fill(amx), fill(widened), fill(scalar);
  run(amx, Isa::amx), run(widened, Isa::avx512), run(scalar, Isa::scalar);
  EXPECT_EQ(first_difference(amx, widened), "");
  EXPECT_EQ(first_difference(amx, scalar), "");
}

/// What is not finite stays where the definition has it: keys and values of the first token of a block reach no row
/// before, queries and output gradients of the last one no key behind.
TEST_F(AttentionAmx, CarriesInfinitiesAndNansAsTheyDo) {
  Case const c{"", 1, 320, 2, 1, 96, 64};
  float const infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (float value : {infinity, -infinity, nan}) {
    for (int input = 0; input < 4; ++input) {
      Bf16 amx(c), widened(c);
      for (Bf16* x : {&amx, &widened}) {
        set(*std::array{&x->q, &x->k, &x->v, &x->go}[static_cast<std::size_t>(input)],
            input == 1 || input == 2 ? 256 : 255, value);
      }
      run(amx, Isa::amx), run(widened, Isa::avx512);
      EXPECT_EQ(first_difference(amx, widened), "") << value << " in input " << input;
      EXPECT_FALSE(
          std::isfinite(to_float(amx.dk.at(0, 0, 0)) + to_float(amx.dq.at(319, 0, 0)) + to_float(amx.o.at(319, 0, 0))))
          << "it must be seen somewhere";
    }
  }
}

TEST_F(AttentionAmx, IsComparedWithAnEyeForOtherSums) {
  Bf16 amx(cases[6]), pairs(cases[6]);
  run(amx, Isa::amx), run(pairs, Isa::avx512, Bf16Class::pairs);
  EXPECT_NE(first_difference(amx, pairs), "");
}

}  // namespace
}  // namespace isotrain::kernels::test
