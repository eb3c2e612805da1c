// The product against its scalar definition, bit for bit: sizes, layouts, threads, instruction sets, special values.
#include "kernels/matmul.h"

#include <limits>

#include "tests/kernels/matmul/cases.h"
#include "tests/support/isa.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

constexpr std::int64_t edges[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100};
constexpr std::int64_t largest = 100;

/// All (M, N, K) from `edges`, layouts and threads varying with them, against one definition for each K.
template <class T>
void test_edges(Kind kind) {
  RestoreIsa const restore;
  std::vector<T> const a = wild_numbers<T>(largest * largest, 1);
  std::vector<T> const b = wild_numbers<T>(largest * largest, 2);
  std::vector<float> const c_in = wild_numbers<float>(largest * largest, 3);
  int turn = 0;
  for (std::int64_t k : edges) {
    Matrix<T const> const all_a(a.data(), largest, k, largest);
    Matrix<T const> const all_b(b.data(), k, largest, largest);
    std::vector<float> from_zero(largest * largest, 0.0F);
    std::vector<float> from_c = c_in;
    define_product<T>(kind.sum, {from_zero.data(), largest, largest}, all_a, all_b);
    define_product<T>(kind.sum, {from_c.data(), largest, largest}, all_a, all_b);
    for (Isa const isa : available_isas_and_amx()) {
      for (std::int64_t m : edges) {
        for (std::int64_t n : edges) {
          ++turn;
          if (isa == Isa::scalar && m * n * k > 20000 && turn % 8 != 0) continue;  // slow, and nothing new
          int const threads[] = {1, 2, 4};
          Cpu const at(threads[turn % 3], kind.bf16, isa);
          Stored<T> const stored_a(all_a.slice_rows(0, m), layouts[turn / 3 % 3]);
          Stored<T> const stored_b(all_b.slice_cols(0, n), layouts[turn / 9 % 3]);
          Matrix<float const> const wanted_zero(from_zero.data(), m, n, largest);
          Matrix<float const> const wanted_c(from_c.data(), m, n, largest);
          Stored<float> c(m, n, layouts[turn / 27 % 3]);
          matmul(at, c.view(), stored_a.const_view(), stored_b.const_view());
          ASSERT_TRUE(same_bits(c.const_view(), wanted_zero)) << kind.name << " " << m << " " << n << " " << k;
          ASSERT_TRUE(c.surroundings_untouched());
          Stored<float> sum(Matrix<float const>(c_in.data(), m, n, largest), layouts[turn / 27 % 3]);
          matmul(at, sum.view(), stored_a.const_view(), stored_b.const_view(), Accumulate::yes);
          ASSERT_TRUE(same_bits(sum.const_view(), wanted_c)) << kind.name << " " << m << " " << n << " " << k;
          ASSERT_TRUE(sum.surroundings_untouched());
        }
      }
    }
  }
}

TEST(Matmul, Fp32EqualsTheChainAtEveryEdge) {
  test_edges<float>(chain_kind);
}
TEST(Matmul, TilesEqualTheirDefinitionAtEveryEdge) {
  test_edges<bfloat16>(tiles_kind);
}
TEST(Matmul, PairsEqualTheirDefinitionAtEveryEdge) {
  test_edges<bfloat16>(pairs_kind);
}

/// Sizes above every cache block, so that each loop of the blocking turns more than once; a sample of elements.
template <class T>
void test_large(Kind kind, std::int64_t m, std::int64_t n, std::int64_t k) {
  RestoreIsa const restore;
  std::vector<T> const a = wild_numbers<T>(m * k, 4);
  std::vector<T> const b = wild_numbers<T>(k * n, 5);
  std::vector<float> const c_in = wild_numbers<float>(m * n, 6);
  for (Isa const isa : available_isas_and_amx()) {
    if (isa == Isa::scalar) continue;
    for (int threads : {1, 2, 3}) {
      std::vector<float> c = c_in;
      Matrix<T const> const view_a(a.data(), m, k);
      Matrix<T const> const view_b = Matrix<T const>(b.data(), n, k).transposed();
      matmul(Cpu(threads, kind.bf16, isa), Matrix<float>(c.data(), m, n), view_a, view_b, Accumulate::yes);
      FlushToZero const mode;
      std::mt19937 random(7);
      for (int sample = 0; sample < 300; ++sample) {
        std::int64_t const i = random() % static_cast<std::uint32_t>(m);
        std::int64_t const j = random() % static_cast<std::uint32_t>(n);
        float const wanted = element_of_product(
            kind.sum, [&](std::int64_t x) { return to_float(view_a(i, x)); },
            [&](std::int64_t x) { return to_float(view_b(x, j)); }, k, c_in[static_cast<std::size_t>(i * n + j)]);
        ASSERT_TRUE(same(c[static_cast<std::size_t>(i * n + j)], wanted)) << kind.name << " (" << i << ", " << j << ")";
      }
    }
  }
}

TEST(Matmul, BlockingOfLargeSizesChangesNothing) {
  test_large<float>(chain_kind, 301, 1203, 2201);
  test_large<float>(chain_kind, 1500, 70, 300);
  test_large<float>(chain_kind, 20, 3000, 700);
  test_large<bfloat16>(tiles_kind, 301, 1203, 2201);
  test_large<bfloat16>(pairs_kind, 301, 1203, 2201);
}

TEST(Matmul, AnotherOrderOfTheSumDiffers) {
  std::int64_t const k = 64;
  std::int64_t const n = 50;
  auto const a = wild_numbers<float>(k, 8);
  auto const b = wild_numbers<float>(k * n, 9);
  std::vector<float> c(n);
  matmul(Cpu(), Matrix<float>(c.data(), 1, n), Matrix<float const>(a.data(), 1, k),
         Matrix<float const>(b.data(), k, n));
  FlushToZero const mode;
  auto const differences = [&](SumKind kind, MatmulSum sum, bool backwards) {
    int count = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      auto const order = [&](std::int64_t i) { return backwards ? k - 1 - i : i; };
      float const other = element_of_product(
          kind, [&](std::int64_t i) { return a[static_cast<std::size_t>(order(i))]; },
          [&](std::int64_t i) { return b[static_cast<std::size_t>(order(i) * n + j)]; }, k, 0, sum);
      if (!same(c[static_cast<std::size_t>(j)], other)) ++count;
    }
    return count;
  };
  EXPECT_EQ(differences(SumKind::chain, {}, false), 0);
  EXPECT_GT(differences(SumKind::chain, {}, true), n / 5);
  EXPECT_GT(differences(SumKind::chain, {.slices = 2}, false), n / 5);
  EXPECT_GT(differences(SumKind::tiles, {}, false), n / 5);
  EXPECT_GT(differences(SumKind::pairs, {}, false), n / 5);
}

/// Each addition of the longest path from a product to the sum rounds by at most half a unit in the last place.
template <class T>
void test_accuracy(Kind kind, std::int64_t k, std::int64_t path) {
  std::int64_t const m = 33;
  std::int64_t const n = 47;
  auto const a = wild_numbers<T>(m * k, 10);
  auto const b = wild_numbers<T>(k * n, 11);
  std::vector<float> c(static_cast<std::size_t>(m * n));
  matmul(Cpu(2, kind.bf16), Matrix<float>(c.data(), m, n), Matrix<T const>(a.data(), m, k),
         Matrix<T const>(b.data(), k, n));
  double const half_ulp = 0x1p-24;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      auto const exact =
          double_sum([&](std::int64_t x) { return to_float(a[static_cast<std::size_t>(i * k + x)]); },
                     [&](std::int64_t x) { return to_float(b[static_cast<std::size_t>(x * n + j)]); }, k);
      double const bound = static_cast<double>(path) * half_ulp * exact.magnitude * 1.001;
      ASSERT_NEAR(c[static_cast<std::size_t>(i * n + j)], exact.value, bound) << kind.name;
    }
  }
}

TEST(Matmul, IsAsAccurateAsItsSumsAllow) {
  std::int64_t const k = 517;
  test_accuracy<float>(chain_kind, k, k);
  test_accuracy<bfloat16>(pairs_kind, k, k + 1);
  test_accuracy<bfloat16>(tiles_kind, k, 16 + 1 + (k + 31) / 32);
}

/// Numbers that overflow, vanish or are none; K long enough for padding, several blocks and whole tiles.
template <class T>
void test_special_values(Kind kind) {
  RestoreIsa const restore;
  float const infinity = std::numeric_limits<float>::infinity();
  float const special[] = {infinity,   -infinity, std::nanf(""), 0.0F,     -0.0F,     1.0F,    -1.0F,       0x1p-130F,
                           -0x1p-133F, 0x1p-126F, -0x1.8p-126F,  0x1p-70F, -0x1p-64F, 0x1p64F, -0x1.8p127F, 0x1.1p-63F};
  std::mt19937 random(12);
  for (int const num_special : {2, 9, 40, 2000}) {
    std::int64_t const m = 37;
    std::int64_t const n = 41;
    for (std::int64_t const k : {3, 33, 70}) {
      // All tiny, so that most products and sums are subnormal, or plain; then a few special ones.
      auto const tiny = [&](std::vector<T> x) {
        for (T& value : x) {
          if (num_special % 2 == 0) value = from_float<T>(to_float(value) * 0x1p-63F);
        }
        for (int i = 0; i < num_special; ++i) {
          x[random() % x.size()] =
              from_float<T>(special[num_special < 9 ? 3 + random() % 9 : random() % std::size(special)]);
        }
        return x;
      };
      std::vector<T> const a = tiny(wild_numbers<T>(m * k, 13));
      std::vector<T> const b = tiny(wild_numbers<T>(k * n, 14));
      std::vector<float> c_in(static_cast<std::size_t>(m * n));
      for (float& x : c_in) x = special[3 + random() % 9];
      std::vector<float> wanted = c_in;
      Matrix<T const> const view_a(a.data(), m, k);
      Matrix<T const> const view_b(b.data(), k, n);
      define_product<T>(kind.sum, {wanted.data(), m, n}, view_a, view_b);
      for (Isa const isa : available_isas_and_amx()) {
        std::vector<float> c = c_in;
        matmul(Cpu(2, kind.bf16, isa), Matrix<float>(c.data(), m, n), view_a, view_b, Accumulate::yes);
        ASSERT_TRUE(same_bits(Matrix<float const>(c.data(), m, n), Matrix<float const>(wanted.data(), m, n)))
            << kind.name << " " << isa_name() << " K " << k << ", " << num_special << " special";
      }
    }
  }
}

TEST(Matmul, InfinitiesNansZerosAndSubnormalsFollowTheDefinition) {
  test_special_values<float>(chain_kind);
  test_special_values<bfloat16>(tiles_kind);
  test_special_values<bfloat16>(pairs_kind);
}

TEST(Matmul, SubnormalResultsAreFlushed) {
  float const a = 0x1p-100F;
  float const b = -0x1p-30F;
  float c = 1;
  matmul(Cpu(), Matrix<float>(&c, 1, 1), Matrix<float const>(&a, 1, 1), Matrix<float const>(&b, 1, 1));
  EXPECT_EQ(bits_of(c), bits_of(-0.0F));
}

TEST(Matmul, RowsAndColumnsOfACallDoNotSeeEachOther) {
  std::int64_t const size = 130;
  auto const a = wild_numbers<float>(size * size, 15);
  auto const b = wild_numbers<float>(size * size, 16);
  std::vector<float> whole(size * size);
  Matrix<float const> const view_a(a.data(), size, size);
  Matrix<float const> const view_b(b.data(), size, size);
  Matrix<float> const view_c(whole.data(), size, size);
  matmul(Cpu(2), view_c, view_a, view_b);
  for (std::int64_t first : {1, 5, 63}) {
    for (std::int64_t count : {1, 4, 50}) {
      std::vector<float> part(static_cast<std::size_t>(count * count));
      Matrix<float> const c(part.data(), count, count);
      matmul(Cpu(), c, view_a.slice_rows(first, count), view_b.slice_cols(first + 1, count));
      ASSERT_TRUE(same_bits<float>(c, view_c.slice_rows(first, count).slice_cols(first + 1, count)));
    }
  }
}

TEST(Matmul, AmxIsUsedOnlyIfNoLowerInstructionSetIsForced) {
  if (!amx_granted()) {
    EXPECT_FALSE(amx_usable());
    EXPECT_THROW(Cpu(1, Bf16Class::tiles, Isa::amx), UsageError);
    GTEST_SKIP() << "this process may not use AMX";
  }
  RestoreIsa const restore;
  Cpu const with_amx(1, Bf16Class::tiles, Isa::amx);
  EXPECT_TRUE(amx_usable());
  EXPECT_EQ(isa_name(), "AVX-512 and AMX");
  Cpu const without(1, Bf16Class::tiles, Isa::avx512);
  EXPECT_FALSE(amx_usable());
  EXPECT_EQ(isa_name(), "AVX-512");
}

TEST(Matmul, ShapesThatDoNotFitAreRefused) {
  float x[64] = {};
  auto const view = [&](std::int64_t rows, std::int64_t cols) { return Matrix<float>(x, rows, cols); };
  auto const call = [&](Matrix<float> c, Matrix<float> a, Matrix<float> b, Accumulate accumulate = Accumulate::no,
                        MatmulSum sum = {}, Matrix<float const> residual = {}) {
    matmul<float, float>(Cpu(), c, a, b, accumulate, sum, residual);
  };
  EXPECT_NO_THROW(call(view(2, 3), view(2, 4), view(4, 3)));
  EXPECT_THROW(call(view(3, 3), view(2, 4), view(4, 3)), std::logic_error);
  EXPECT_THROW(call(view(2, 2), view(2, 4), view(4, 3)), std::logic_error);
  EXPECT_THROW(call(view(2, 3), view(2, 4), view(3, 3)), std::logic_error);
  EXPECT_THROW(call(view(2, 3), view(2, 4), view(4, 3), Accumulate::no, {.slices = 0}), std::logic_error);
  EXPECT_THROW(call(view(2, 3), view(2, 4), view(4, 3), Accumulate::no, {.leaf = -1}), std::logic_error);
  EXPECT_THROW(call(view(2, 3), view(2, 4), view(4, 3), Accumulate::yes, {.slices = 2}), std::logic_error);
  EXPECT_THROW(call(view(2, 3), view(2, 4), view(4, 3), Accumulate::yes, {}, view(2, 3)), std::logic_error);
  EXPECT_THROW(call(view(2, 3), view(2, 4), view(4, 3), Accumulate::no, {}, view(3, 3)), std::logic_error);
  bfloat16 y[64] = {};
  Matrix<bfloat16> const square(y, 2, 2);
  EXPECT_THROW((matmul<bfloat16, bfloat16>(Cpu(), square, square, square, Accumulate::yes)), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
