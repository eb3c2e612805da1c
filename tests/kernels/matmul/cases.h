#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "lib/device/cpu.h"
#include "tests/reference/matmul.h"

/// What the tests of matrix products share: inputs, layouts, comparison of bits.
namespace isotrain::test {

/// One kind of product: element type and class.
struct Kind {
  char const* name;
  SumKind sum;
  Bf16Class bf16;
};
inline constexpr Kind chain_kind{"fp32", SumKind::chain, Bf16Class::tiles};
inline constexpr Kind tiles_kind{"tiles", SumKind::tiles, Bf16Class::tiles};
inline constexpr Kind pairs_kind{"pairs", SumKind::pairs, Bf16Class::pairs};

/// Row-major, column-major, or neither contiguous.
enum class Layout { rows, cols, strided };
inline constexpr Layout layouts[] = {Layout::rows, Layout::cols, Layout::strided};

/// A matrix with room around its elements that a kernel must not touch.
template <class T>
class Stored {
 public:
  Stored(std::int64_t rows, std::int64_t cols, Layout layout) {
    std::int64_t const padding = 3;
    std::int64_t const step = layout == Layout::strided ? 2 : 1;
    bool const by_rows = layout != Layout::cols;
    std::int64_t const long_stride = (by_rows ? cols : rows) * step + padding;
    memory_.assign(static_cast<std::size_t>((by_rows ? rows : cols) * long_stride + 2 * padding),
                   from_float<T>(std::nanf("")));
    view_ = {memory_.data() + padding, rows, cols, by_rows ? long_stride : step, by_rows ? step : long_stride};
    before_ = memory_;
  }
  Stored(Matrix<T const> values, Layout layout) : Stored(values.rows, values.cols, layout) {
    for (std::int64_t i = 0; i < values.rows; ++i) {
      for (std::int64_t j = 0; j < values.cols; ++j) view_(i, j) = values(i, j);
    }
    before_ = memory_;
  }
  Stored(Stored const&) = delete;
  Stored& operator=(Stored const&) = delete;

  Matrix<T> view() const { return view_; }
  Matrix<T const> const_view() const { return view_; }

  /// True if nothing beside the elements changed since construction.
  bool surroundings_untouched() {
    for (std::int64_t i = 0; i < view_.rows; ++i) {
      for (std::int64_t j = 0; j < view_.cols; ++j)
        view_(i, j) = before_[static_cast<std::size_t>(&view_(i, j) - memory_.data())];
    }
    return std::memcmp(memory_.data(), before_.data(), memory_.size() * sizeof(T)) == 0;
  }

 private:
  std::vector<T> memory_;
  std::vector<T> before_;
  Matrix<T> view_;
};

/// N(0,1) * 2^U(-8,8): any other order of a sum shows.
template <class T>
std::vector<T> wild_numbers(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-8, 8);
  std::vector<T> x(static_cast<std::size_t>(count));
  for (T& value : x) {
    float const number = normal(random);
    value = from_float<T>(std::ldexp(number, exponent(random)));
  }
  return x;
}

inline std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline std::uint32_t bits_of(bfloat16 x) {
  return x.bits;
}

/// The same bits; any NaN equals any NaN.
template <class T>
bool same(T x, T y) {
  return bits_of(x) == bits_of(y) || (std::isnan(to_float(x)) && std::isnan(to_float(y)));
}

/// Success, or the first element that differs.
template <class T>
testing::AssertionResult same_bits(Matrix<T const> got, Matrix<T const> wanted) {
  for (std::int64_t i = 0; i < got.rows; ++i) {
    for (std::int64_t j = 0; j < got.cols; ++j) {
      if (same(got(i, j), wanted(i, j))) continue;
      return testing::AssertionFailure() << "element (" << i << ", " << j << ") is " << to_float(got(i, j)) << " ("
                                         << std::hex << bits_of(got(i, j)) << "), not " << to_float(wanted(i, j))
                                         << " (" << bits_of(wanted(i, j)) << ")";
    }
  }
  return testing::AssertionSuccess();
}

/// C by definition: `c` holds C_in when it is called; `residual`, if given, is added last.
template <class T>
void define_product(SumKind kind, Matrix<float> c, Matrix<T const> a, Matrix<T const> b, kernels::MatmulSum sum = {}) {
  FlushToZero const mode;
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.cols; ++j) {
      c(i, j) = element_of_product(
          kind, [&](std::int64_t k) { return to_float(a(i, k)); }, [&](std::int64_t k) { return to_float(b(k, j)); },
          a.cols, c(i, j), sum);
    }
  }
}

}  // namespace isotrain::test
