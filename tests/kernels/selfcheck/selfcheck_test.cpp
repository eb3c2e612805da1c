// The start-up check passes, gives the same fingerprint everywhere, and finds products that break one rule each.
#include "kernels/selfcheck.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>

#include "lib/base/error.h"

namespace isotrain::kernels::test {
namespace {

std::vector<ProductShape> small_model(ProductInput input) {
  std::vector<ProductShape> products;
  for (auto const& more :
       {linear_products("query", 96, 64, input, 1, 4, 256, 64),
        linear_products("output", 64, 133, input, 4, 1, 256, 64), linear_products("down", 3, 257, input, 8, 1, 100, 50),
        linear_products("head", 1000, 64, input, 1, 4, 256, 0)}) {
    products.insert(products.end(), more.begin(), more.end());
  }
  return products;
}

class SelfCheck : public testing::Test {
 protected:
  ~SelfCheck() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST_F(SelfCheck, FingerprintIsTheSameOnAllInstructionSetsAndThreads) {
  for (auto input : {ProductInput::fp32, ProductInput::bf16}) {
    for (auto bf16 : {Bf16Class::tiles, Bf16Class::pairs}) {
      auto const products = small_model(input);
      std::uint64_t const fingerprint = numerics_selfcheck(Cpu(1, bf16), products);
      EXPECT_EQ(numerics_selfcheck(Cpu(3, bf16), products), fingerprint);
      for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
        try {
          Cpu const at(1, bf16, isa);
          EXPECT_EQ(numerics_selfcheck(at, products), fingerprint) << isa_name();
        } catch (UsageError const&) {
        }
      }
      hwy::SetSupportedTargetsForTest(0);
      hwy::GetChosenTarget().DeInit();
    }
  }
}

TEST_F(SelfCheck, FingerprintTellsClassesPrecisionsAndModelsApart) {
  auto const narrow = small_model(ProductInput::bf16), wide = small_model(ProductInput::fp32);
  EXPECT_NE(numerics_selfcheck(Cpu(1, Bf16Class::tiles), narrow), numerics_selfcheck(Cpu(1, Bf16Class::pairs), narrow));
  EXPECT_NE(numerics_selfcheck(Cpu(), narrow), numerics_selfcheck(Cpu(), wide));
  EXPECT_NE(numerics_selfcheck(Cpu(), wide), numerics_selfcheck(Cpu(), std::span(wide).first(3)));
  auto twice = wide;
  twice.insert(twice.end(), wide.begin(), wide.end());
  EXPECT_EQ(numerics_selfcheck(Cpu(), twice), numerics_selfcheck(Cpu(), wide)) << "each distinct product once";
}

/// Checks a product that breaks a rule; returns the message of the error, "" if it passed.
template <class Wrong>
std::string message(Wrong const& wrong, int threads = 2, MatmulSum sum = {}) {
  CheckedProducts checked;
  checked.fp32 = [&](Cpu const& at, Matrix<float> c, Matrix<float const> a, Matrix<float const> b,
                     Accumulate accumulate, MatmulSum sum) {
    CheckedProducts{}.fp32(at, c, a, b, accumulate, sum);
    wrong(at, c, a, b, accumulate, sum);
  };
  std::vector<ProductShape> const products = {{"gate", 70, 160, ProductInput::fp32, sum}};
  try {
    numerics_selfcheck(Cpu(threads), products, checked);
  } catch (Error const& error) {
    return error.what();
  }
  return "";
}

/// C with the first two steps of every sum exchanged.
void other_order(Matrix<float> c, Matrix<float const> a, Matrix<float const> b) {
  FlushToZero const mode;
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.cols; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < a.cols; ++k) {
        std::int64_t const step = k < 2 && a.cols > 1 ? 1 - k : k;
        sum = std::fma(a(i, step), b(step, j), sum);
      }
      c(i, j) = sum;
    }
  }
}

TEST_F(SelfCheck, FindsAnotherOrder) {
  std::string const text =
      message([](Cpu const&, auto c, auto a, auto b, Accumulate, MatmulSum) { other_order(c, a, b); });
  EXPECT_NE(text.find("product 'gate' (N = 70, K = 160, fp32)"), std::string::npos) << text;
  EXPECT_NE(text.find("scalar definition"), std::string::npos) << text;
  EXPECT_NE(text.find("element ["), std::string::npos) << text;
}

TEST_F(SelfCheck, FindsBitsThatDependOnTheCall) {
  auto change = [](Matrix<float> c) { c(c.rows - 1, 0) = std::nextafter(c(c.rows - 1, 0), INFINITY); };
  EXPECT_EQ(message([&](Cpu const&, auto, auto, auto, Accumulate, MatmulSum) {}), "") << "the unchanged product passes";
  std::string text = message([&](Cpu const&, auto c, auto, auto, Accumulate, MatmulSum) {
    if (c.rows == 1) change(c);
  });
  EXPECT_NE(text.find("part of the rows and columns, M = 1"), std::string::npos) << text;
  text = message([&](Cpu const&, auto c, auto, auto, Accumulate, MatmulSum) {
    if (c.row_stride == 1 && c.rows > 1) change(c);
  });
  EXPECT_NE(text.find("other strides"), std::string::npos) << text;
  text = message([&](Cpu const& at, auto c, auto, auto, Accumulate, MatmulSum) {
    if (at.threads() == 2 && c.rows > 100) change(c);
  });
  EXPECT_NE(text.find("2 threads"), std::string::npos) << text;
  text = message([&](Cpu const&, auto c, auto, auto, Accumulate accumulate, MatmulSum) {
    if (accumulate == Accumulate::yes) change(c);
  });
  EXPECT_NE(text.find("K cut at 1"), std::string::npos) << text;
  text = message([&](Cpu const&, auto c, auto, auto, Accumulate, MatmulSum) {
    if (c.rows == 5) change(c);
  });
  EXPECT_NE(text.find("first columns of 70"), std::string::npos) << text;
}

TEST_F(SelfCheck, FindsSlicesThatAreNotSummedAsATree) {
  auto const chain = [](Cpu const& at, auto c, auto a, auto b, Accumulate, MatmulSum) { matmul(at, c, a, b); };
  EXPECT_EQ(message([](Cpu const&, auto, auto, auto, Accumulate, MatmulSum) {}, 2, {.slices = 4}), "");
  EXPECT_NE(message(chain, 2, {.slices = 4}).find("scalar definition"), std::string::npos);
}

template <class T>
void test_product_of_model(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t k = 133;
  std::vector<T> a, b;
  for (std::int64_t i = 0; i < rows * k; ++i) a.push_back(from_float<T>(std::sin(static_cast<float>(i * i % 1009))));
  for (std::int64_t i = 0; i < columns * k; ++i) b.push_back(from_float<T>(std::cos(static_cast<float>(i * i % 2003))));
  Matrix<T const> const left(a.data(), rows, k), right(b.data(), k, columns, 1, k);
  std::vector<float> got(static_cast<std::size_t>(rows * columns)), wanted(got.size()), uncut(got.size());
  for (int const slices : {1, 3, 4, 100}) {
    MatmulSum const sum{.slices = slices};
    product_of_model<T>(Cpu(), {got.data(), rows, columns}, left, right, Accumulate::no, sum);
    matmul(Cpu(), Matrix<float>(wanted.data(), rows, columns), left, right, Accumulate::no, sum);
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0) << slices;
  }
  matmul(Cpu(), Matrix<float>(uncut.data(), rows, columns), left, right);
  EXPECT_NE(std::memcmp(got.data(), uncut.data(), got.size() * sizeof(float)), 0);
}

TEST_F(SelfCheck, ChecksTheProductOfPieces) {
  for (std::int64_t const columns : {40, 3000}) {  // copied, and too large for it
    test_product_of_model<float>(17, columns);
    test_product_of_model<bfloat16>(17, columns);
  }
}

TEST_F(SelfCheck, RefusesEmptyProducts) {
  std::vector<ProductShape> const products = {{"nothing", 0, 4, ProductInput::fp32, {}}};
  EXPECT_THROW(numerics_selfcheck(Cpu(), products), std::logic_error);
}

TEST_F(SelfCheck, AcceptsTheProductsOfAModel) {
  std::vector<ProductShape> products;
  for (auto const& more : {linear_products("attention.query", 768, 512, ProductInput::fp32, 1, 4, 512, 512),
                           linear_products("attention.output", 512, 512, ProductInput::fp32, 4, 1, 512, 512),
                           linear_products("gate_up", 2816, 512, ProductInput::fp32, 1, 4, 512, 512),
                           linear_products("down", 512, 1408, ProductInput::fp32, 4, 1, 512, 512),
                           linear_products("expert.gate_up", 704, 512, ProductInput::fp32, 1, 4, 512, 512),
                           linear_products("expert.down", 512, 352, ProductInput::fp32, 4, 1, 512, 512),
                           linear_products("head", 8192, 512, ProductInput::fp32, 1, 4, 512, 512)}) {
    products.insert(products.end(), more.begin(), more.end());
  }
  EXPECT_EQ(numerics_selfcheck(Cpu(1), products), numerics_selfcheck(Cpu(2), products));
}

}  // namespace
}  // namespace isotrain::kernels::test
