// Cuts along K, slices, leaves, residual, rounding, and that a step allocates nothing.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/kernels/matmul/cases.h"
#include "tests/support/isa.h"

namespace {
std::atomic<long> allocations{0};
void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* const p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}
}  // namespace

// Not inlined: GCC would see free() of what operator new gave, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes, 16);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

template <class T>
struct Inputs {
  Inputs(std::int64_t m, std::int64_t n, std::int64_t k)
      : memory_a(wild_numbers<T>(m * k, 1)),
        memory_b(wild_numbers<T>(k * n, 2)),
        a(memory_a.data(), m, k),
        b(memory_b.data(), k, n) {}

  std::vector<T> memory_a;
  std::vector<T> memory_b;
  Matrix<T const> a;
  Matrix<T const> b;
};

template <class T>
std::vector<float> product(Cpu const& at, Inputs<T> const& in, MatmulSum sum = {}) {
  std::vector<float> c(static_cast<std::size_t>(in.a.rows * in.b.cols));
  matmul(at, Matrix<float>(c.data(), in.a.rows, in.b.cols), in.a, in.b, Accumulate::no, sum);
  return c;
}

/// The product by calls that each add `step` of K.
template <class T>
std::vector<float> product_in_steps(Cpu const& at, Inputs<T> const& in, std::int64_t step) {
  std::vector<float> c(static_cast<std::size_t>(in.a.rows * in.b.cols));
  for (std::int64_t k = 0; k < in.a.cols; k += step) {
    std::int64_t const count = std::min(step, in.a.cols - k);
    matmul(at, Matrix<float>(c.data(), in.a.rows, in.b.cols), in.a.slice_cols(k, count), in.b.slice_rows(k, count),
           k == 0 ? Accumulate::no : Accumulate::yes);
  }
  return c;
}

bool equal(std::vector<float> const& x, std::vector<float> const& y) {
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

TEST(MatmulSum, CutsAlongKChangeNothingInFp32) {
  Inputs<float> const in(45, 70, 1000);
  auto const whole = product(Cpu(), in);
  for (std::int64_t step : {1, 16, 100, 999}) EXPECT_TRUE(equal(product_in_steps(Cpu(2), in, step), whole)) << step;
}

TEST(MatmulSum, TilesMayBeCutAtBlocksOnly) {
  Inputs<bfloat16> const in(45, 70, 1000);
  Cpu const at(2, Bf16Class::tiles);
  auto const whole = product(at, in);
  for (std::int64_t step : {32, 96, 512}) EXPECT_TRUE(equal(product_in_steps(at, in, step), whole)) << step;
  for (std::int64_t step : {1, 16, 100}) EXPECT_FALSE(equal(product_in_steps(at, in, step), whole)) << step;
}

TEST(MatmulSum, PairsMayBeCutAtEvenPlacesOnly) {
  Inputs<bfloat16> const in(45, 70, 1000);
  Cpu const at(2, Bf16Class::pairs);
  auto const whole = product(at, in);
  for (std::int64_t step : {2, 16, 100}) EXPECT_TRUE(equal(product_in_steps(at, in, step), whole)) << step;
  for (std::int64_t step : {1, 33}) EXPECT_FALSE(equal(product_in_steps(at, in, step), whole)) << step;
}

TEST(MatmulSum, LeafEqualsCallsCutThere) {
  RestoreIsa const restore;
  for (Kind const kind : {tiles_kind, pairs_kind}) {
    Inputs<bfloat16> const in(20, 40, 700);
    for (Isa const isa : available_isas_and_amx()) {
      Cpu const at(2, kind.bf16, isa);
      for (std::int64_t leaf : {1, 7, 33, 100, 256, 699, 700, 5000}) {
        if (isa == Isa::scalar && leaf > 33) continue;
        EXPECT_TRUE(equal(product(at, in, {.leaf = leaf}), product_in_steps(at, in, leaf))) << kind.name << " " << leaf;
      }
    }
    EXPECT_FALSE(equal(product(Cpu(1, kind.bf16), in, {.leaf = 33}), product(Cpu(1, kind.bf16), in))) << kind.name;
  }
  Inputs<float> const in(20, 40, 700);
  EXPECT_TRUE(equal(product(Cpu(), in, {.leaf = 7}), product(Cpu(), in))) << "fp32";
}

template <class T>
void test_slices(Kind kind) {
  RestoreIsa const restore;
  for (std::int64_t const k : {1, 5, 31, 64, 333, 1100}) {
    Inputs<T> const in(k > 500 ? 10 : 33, k > 500 ? 9 : 50, k);
    for (int const slices : {1, 2, 3, 4, 5, 8, 16}) {
      for (std::int64_t const leaf : {0, 10}) {
        MatmulSum const sum{slices, leaf};
        std::vector<float> wanted(static_cast<std::size_t>(in.a.rows * in.b.cols));
        define_product<T>(kind.sum, {wanted.data(), in.a.rows, in.b.cols}, in.a, in.b, sum);
        for (Isa const isa : available_isas_and_amx()) {
          ASSERT_TRUE(equal(product(Cpu(2, kind.bf16, isa), in, sum), wanted))
              << kind.name << " " << slices << " " << k;
        }
      }
    }
  }
}

TEST(MatmulSum, SlicesAreSummedAsATree) {
  test_slices<float>(chain_kind);
  test_slices<bfloat16>(tiles_kind);
  test_slices<bfloat16>(pairs_kind);
}

TEST(MatmulSum, SlicesOfALargeProductAreSummedAsATree) {
  Inputs<float> const in(700, 150, 1500);
  auto const whole = product(Cpu(2), in, {.slices = 8});
  FlushToZero const mode;
  for (std::int64_t i = 0; i < in.a.rows; i += 37) {
    for (std::int64_t j = 0; j < in.b.cols; j += 7) {
      float const wanted = element_of_product(
          SumKind::chain, [&](std::int64_t k) { return in.a(i, k); }, [&](std::int64_t k) { return in.b(k, j); },
          in.a.cols, 0.0F, {.slices = 8});
      ASSERT_TRUE(same(whole[static_cast<std::size_t>(i * in.b.cols + j)], wanted));
    }
  }
  EXPECT_FALSE(equal(whole, product(Cpu(2), in, {.slices = 4})));
}

TEST(MatmulSum, ALongSumThatIsNotLeftInCIsPackedInParts) {
  RestoreIsa const restore;
  for (Kind const kind : {tiles_kind, pairs_kind}) {
    Inputs<bfloat16> const in(70, 100, 5000);
    for (int const slices : {1, 3}) {
      for (Isa const isa : available_isas_and_amx()) {
        if (isa == Isa::scalar) continue;
        std::vector<bfloat16> c(70 * 100);
        matmul(Cpu(1, kind.bf16, isa), Matrix<bfloat16>(c.data(), 70, 100), in.a, in.b, Accumulate::no,
               {.slices = slices});
        FlushToZero const mode;
        for (std::int64_t i = 0; i < 70; i += 3) {
          for (std::int64_t j = 0; j < 100; j += 9) {
            float const wanted = element_of_product(
                kind.sum, [&](std::int64_t k) { return to_float(in.a(i, k)); },
                [&](std::int64_t k) { return to_float(in.b(k, j)); }, in.a.cols, 0.0F, {.slices = slices});
            ASSERT_TRUE(same(c[static_cast<std::size_t>(i * 100 + j)], to_bfloat16(wanted)))
                << kind.name << " " << slices;
          }
        }
      }
    }
  }
}

/// C = round(sum + residual), residual in C itself or beside it.
template <class T, class Out>
void test_epilogue(Kind kind) {
  RestoreIsa const restore;
  std::int64_t const m = 61;
  std::int64_t const n = 77;
  auto const memory = wild_numbers<Out>(m * n, 3);
  Matrix<Out const> const residual(memory.data(), m, n);
  for (std::int64_t const k : {0, 1, 100, 600}) {
    Inputs<T> const in(m, n, k);
    for (int const slices : {1, 4}) {
      std::vector<float> sum(static_cast<std::size_t>(m * n));
      define_product<T>(kind.sum, {sum.data(), m, n}, in.a, in.b, {.slices = slices});
      std::vector<Out> rounded(sum.size());
      std::vector<Out> added(sum.size());
      for (std::size_t i = 0; i < sum.size(); ++i) {
        rounded[i] = from_float<Out>(sum[i]);
        added[i] = from_float<Out>(sum[i] + to_float(memory[i]));
      }
      Matrix<Out const> const wanted(rounded.data(), m, n);
      Matrix<Out const> const wanted_added(added.data(), m, n);
      for (Isa const isa : available_isas_and_amx()) {
        Cpu const at(2, kind.bf16, isa);
        for (Layout const layout : layouts) {
          Stored<Out> c(m, n, layout);
          matmul(at, c.view(), in.a, in.b, Accumulate::no, {.slices = slices});
          ASSERT_TRUE(same_bits(c.const_view(), wanted)) << kind.name;
          matmul(at, c.view(), in.a, in.b, Accumulate::no, {.slices = slices}, residual);
          ASSERT_TRUE(same_bits(c.const_view(), wanted_added)) << kind.name;
          ASSERT_TRUE(c.surroundings_untouched());
          Stored<Out> aliased(residual, layout);
          matmul(at, aliased.view(), in.a, in.b, Accumulate::no, {.slices = slices}, aliased.const_view());
          ASSERT_TRUE(same_bits(aliased.const_view(), wanted_added)) << kind.name;
        }
      }
    }
  }
}

TEST(MatmulSum, ResidualIsAddedBeforeTheOneRounding) {
  test_epilogue<float, float>(chain_kind);
  test_epilogue<bfloat16, float>(tiles_kind);
  test_epilogue<bfloat16, bfloat16>(tiles_kind);
  test_epilogue<bfloat16, bfloat16>(pairs_kind);
}

TEST(MatmulSum, AStepAllocatesNothing) {
  Inputs<float> const in(300, 200, 700);
  Inputs<bfloat16> const in_bf16(300, 200, 700);
  std::vector<float> c(300 * 200);
  std::vector<std::int64_t> const offsets{0, 100, 300};
  float const* const weights[] = {in.memory_b.data(), in.memory_b.data()};
  Product<float> const products[] = {{in.a, in.b}, {in.a, in.b}};
  auto const step = [&] {
    Matrix<float> const view(c.data(), 300, 200);
    matmul(Cpu(2), view, in.a, in.b);
    matmul(Cpu(2), view, in.a, in.b, Accumulate::no, {.slices = 8});
    matmul(Cpu(2), view, in_bf16.a, in_bf16.b, Accumulate::yes);
    matmul(Cpu(2, Bf16Class::pairs), view, in_bf16.a, in_bf16.b, Accumulate::yes, {.leaf = 3});
    matmul_sliced<float, float>(Cpu(2), view, products, 2);
    grouped_matmul<float, float>(Cpu(2), view, in.a, weights, offsets);
  };
  step();
  long const before = allocations;
  step();
  EXPECT_EQ(allocations - before, 0);
  std::vector<int> const control(1);
  EXPECT_EQ(allocations - before, 1) << "the counter counts";
}

}  // namespace
}  // namespace isotrain::kernels::test
