// Grouped products equal single ones, bit for bit.
#include "tests/kernels/matmul/cases.h"
#include "tests/support/isa.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

/// Rows of each of the groups; the first row of all is `first`, so that offsets need not start at zero.
std::vector<std::int64_t> offsets_of(std::vector<std::int64_t> const& rows, std::int64_t first) {
  std::vector<std::int64_t> offsets{first};
  for (std::int64_t r : rows) offsets.push_back(offsets.back() + r);
  return offsets;
}

std::vector<std::vector<std::int64_t>> const group_rows{
    {0, 0, 0}, {1, 0, 2}, {0, 33, 0, 64, 7}, {200, 1, 0, 50}, {5}, {}, {31, 32, 33, 1, 1, 1, 0, 90}};

template <class T>
struct Groups {
  Groups(std::size_t groups, std::int64_t n, std::int64_t k) : n(n), k(k) {
    for (std::size_t g = 0; g < groups; ++g)
      memory.push_back(wild_numbers<T>(n * k, static_cast<std::uint32_t>(20 + g)));
    for (auto const& weight : memory) pointers.push_back(weight.data());
  }
  Matrix<T const> weight(std::size_t g) const { return {memory[g].data(), n, k}; }

  std::int64_t n;
  std::int64_t k;
  std::vector<std::vector<T>> memory;
  std::vector<T const*> pointers;
};

template <class T, class Out>
void test_groups(Kind kind) {
  RestoreIsa const restore;
  std::int64_t const n = 70;
  std::int64_t const k = 45;
  for (auto const& rows : group_rows) {
    auto const offsets = offsets_of(rows, 2);
    std::int64_t const total = offsets.back() + 1;
    Groups<T> const groups(rows.size(), n, k);
    auto const x = wild_numbers<T>(total * std::max(n, k), 1);
    Matrix<T const> const a(x.data(), total, k);
    Matrix<T const> const dc(x.data(), total, n);
    auto const untouched = wild_numbers<Out>(total * std::max(n, k), 2);
    for (Isa const isa : available_isas_and_amx()) {
      std::vector<Out> wanted_c = untouched;
      std::vector<Out> wanted_da = untouched;
      Cpu const one(1, kind.bf16, isa);
      for (std::size_t g = 0; g < rows.size(); ++g) {
        auto const of = [&](auto m) { return m.slice_rows(offsets[g], rows[g]); };
        matmul(one, of(Matrix<Out>(wanted_c.data(), total, n)), of(a), groups.weight(g).transposed());
        matmul(one, of(Matrix<Out>(wanted_da.data(), total, k)), of(dc), groups.weight(g));
      }
      for (int const threads : {1, 2, 3}) {
        Cpu const at(threads, kind.bf16, isa);
        std::vector<Out> c = untouched;
        std::vector<Out> da = untouched;
        grouped_matmul<T, Out>(at, {c.data(), total, n}, a, groups.pointers, offsets);
        grouped_matmul_input<T, Out>(at, {da.data(), total, k}, dc, groups.pointers, offsets);
        ASSERT_TRUE(same_bits(Matrix<Out const>(c.data(), total, n), Matrix<Out const>(wanted_c.data(), total, n)));
        ASSERT_TRUE(same_bits(Matrix<Out const>(da.data(), total, k), Matrix<Out const>(wanted_da.data(), total, k)));
      }
    }
  }
}

TEST(GroupedMatmul, EqualsOneProductAGroup) {
  test_groups<float, float>(chain_kind);
  test_groups<bfloat16, bfloat16>(tiles_kind);
  test_groups<bfloat16, bfloat16>(pairs_kind);
  test_groups<bfloat16, float>(tiles_kind);
}

template <class T>
void test_weight_gradients(Kind kind) {
  RestoreIsa const restore;
  std::int64_t const n = 70;
  std::int64_t const k = 45;
  for (auto const& rows : group_rows) {
    for (int const segments : {1, 2, 4}) {
      if (rows.size() % static_cast<std::size_t>(segments) != 0) continue;
      std::size_t const groups = rows.size() / static_cast<std::size_t>(segments);
      auto const offsets = offsets_of(rows, 3);
      std::int64_t const total = offsets.back();
      auto const x = wild_numbers<T>(total * k, 3);
      auto const dy = wild_numbers<T>(total * n, 4);
      Matrix<T const> const a(x.data(), total, k);
      Matrix<T const> const dc(dy.data(), total, n);
      auto const before = wild_numbers<float>(static_cast<std::int64_t>(groups) * n * k, 5);
      for (Isa const isa : available_isas_and_amx()) {
        std::vector<float> wanted = before;
        for (std::size_t run = 0; run < rows.size(); ++run) {
          float* const dw = wanted.data() + run / static_cast<std::size_t>(segments) * static_cast<std::size_t>(n * k);
          matmul(Cpu(1, kind.bf16, isa), Matrix<float>(dw, n, k), dc.slice_rows(offsets[run], rows[run]).transposed(),
                 a.slice_rows(offsets[run], rows[run]), Accumulate::yes);
        }
        for (int const threads : {1, 2, 3}) {
          std::vector<float> got = before;
          std::vector<float*> pointers;
          for (std::size_t g = 0; g < groups; ++g) pointers.push_back(got.data() + g * static_cast<std::size_t>(n * k));
          grouped_matmul_weight<T>(Cpu(threads, kind.bf16, isa), pointers, dc, a, offsets, segments);
          auto const height = static_cast<std::int64_t>(groups) * n;
          ASSERT_TRUE(
              same_bits(Matrix<float const>(got.data(), height, k), Matrix<float const>(wanted.data(), height, k)))
              << kind.name << " " << segments;
        }
      }
    }
  }
}

TEST(GroupedMatmul, WeightGradientsRestartAtEverySegment) {
  test_weight_gradients<float>(chain_kind);
  test_weight_gradients<bfloat16>(tiles_kind);
  test_weight_gradients<bfloat16>(pairs_kind);
}

TEST(GroupedMatmul, SegmentsMatterInBf16) {
  std::int64_t const size = 40;
  auto const x = wild_numbers<bfloat16>(size * size, 6);
  Matrix<bfloat16 const> const a(x.data(), size, size);
  for (Bf16Class const bf16 : {Bf16Class::tiles, Bf16Class::pairs}) {
    std::vector<float> one(size * size);
    std::vector<float> two(size * size);
    float* const dw_one[] = {one.data()};
    float* const dw_two[] = {two.data()};
    grouped_matmul_weight<bfloat16>(Cpu(1, bf16), dw_one, a, a, std::vector<std::int64_t>{0, size}, 1);
    grouped_matmul_weight<bfloat16>(Cpu(1, bf16), dw_two, a, a, std::vector<std::int64_t>{0, 17, size}, 2);
    EXPECT_FALSE(same_bits(Matrix<float const>(one.data(), size, size), Matrix<float const>(two.data(), size, size)));
  }
}

TEST(GroupedMatmul, OffsetsThatDoNotFitAreRefused) {
  float x[64] = {};
  float* const dw[] = {x};
  float const* const weight[] = {x};
  Matrix<float> const m(x, 4, 4);
  auto const forward = [&](std::vector<std::int64_t> const& offsets) {
    grouped_matmul<float, float>(Cpu(), m, m, weight, offsets);
  };
  auto const input = [&](std::vector<std::int64_t> const& offsets) {
    grouped_matmul_input<float, float>(Cpu(), m, m, weight, offsets);
  };
  auto const gradient = [&](std::vector<std::int64_t> const& offsets) {
    grouped_matmul_weight<float>(Cpu(), dw, m, m, offsets, 1);
  };
  for (std::vector<std::int64_t> const& bad : {std::vector<std::int64_t>{0}, {0, 2, 4}, {2, 1}, {-1, 2}, {0, 5}}) {
    EXPECT_THROW(forward(bad), std::logic_error);
    EXPECT_THROW(input(bad), std::logic_error);
    EXPECT_THROW(gradient(bad), std::logic_error);
  }
  EXPECT_THROW(grouped_matmul_weight<float>(Cpu(), dw, m, m, std::vector<std::int64_t>{0, 1}, 0), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
