#pragma once

// What tests of kernels share: inputs, places to run on, comparison by bits and against double.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "lib/base/bfloat16.h"
#include "lib/base/matrix.h"
#include "lib/base/random.h"
#include "lib/device/cpu.h"
#include "tests/support/isa.h"

namespace isotrain::test {

/// Normal random numbers of the given spread, rounded to T.
template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed, double spread = 1) {
  std::vector<float> x(static_cast<std::size_t>(count));
  fill_normal(x, 0, seed, 0, spread);
  std::vector<T> y;
  for (float const v : x) y.push_back(from_float<T>(v));
  return y;
}

template <class T>
std::vector<double> to_doubles(std::vector<T> const& x) {
  std::vector<double> y;
  for (T const v : x) y.push_back(to_float(v));
  return y;
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// What T holds beyond its columns, to see that nothing writes there. (No NaN, so that it equals itself.)
template <class T>
T guard() {
  return from_float<T>(-12345.0F);
}

/// A matrix with room between its rows and around it; `values` go row by row.
template <class T>
class Padded {
 public:
  Padded(std::int64_t rows, std::int64_t cols, std::int64_t padding, std::vector<T> const& values = {})
      : rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        data_(static_cast<std::size_t>(rows * stride_ + padding + 1), guard<T>()) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      view()(static_cast<std::int64_t>(i) / cols, static_cast<std::int64_t>(i) % cols) = values[i];
    }
  }

  Matrix<T> view() { return {data_.data() + 1, rows_, cols_, stride_}; }

  std::vector<T> values() {
    std::vector<T> all;
    for (std::int64_t r = 0; r < rows_; ++r) all.insert(all.end(), view().row(r), view().row(r) + cols_);
    return all;
  }
  bool padding_is_untouched() {
    Padded clean(rows_, cols_, stride_ - cols_, values());
    return same_bits(clean.data_, data_);
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  std::vector<T> data_;
};

/// Runs body(place) for every instruction set of this processor on one thread, for the best also on 2 and 3.
inline void on_every_place(std::function<void(Cpu const&)> const& body) {
  RestoreIsa const restore;
  auto const isas = available_isas();
  for (Isa const isa : isas) {
    for (int const threads : {1, 2, 3}) {
      if (threads > 1 && isa != isas.back()) continue;
      Cpu const at(threads, Bf16Class::tiles, isa);
      SCOPED_TRACE(isa_name() + ", " + std::to_string(threads) + " threads");
      body(at);
    }
  }
}

/// Largest relative error of one rounding to T.
template <class T>
constexpr double rounding = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-8;
/// One rounding in fp32.
inline constexpr double eps = 0x1p-24;

/// |actual - expected| <= one rounding to T of what was expected + slack, for every element; `slack(i)` is what fp32
/// arithmetic may add.
template <class T>
void expect_close(std::vector<T> const& actual, std::vector<double> const& expected,
                  std::function<double(std::size_t)> const& slack) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const allowed = (std::abs(expected[i]) + slack(i)) * rounding<T> + slack(i);
    ASSERT_LE(std::abs(to_float(actual[i]) - expected[i]), allowed)
        << "element " << i << ": " << to_float(actual[i]) << " instead of " << expected[i];
  }
}
template <class T>
void expect_close(std::vector<T> const& actual, std::vector<double> const& expected, double slack) {
  expect_close(actual, expected, [&](std::size_t) { return slack; });
}

/// Checks `gradient` of f at x by central differences: for smooth f of size about 1, the differences are good to 1e-9.
inline void expect_gradient(std::function<double(std::vector<double> const&)> const& f, std::vector<double> const& x,
                            std::vector<double> const& gradient, double tolerance = 1e-7) {
  ASSERT_EQ(x.size(), gradient.size());
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto up = x, down = x;
    up[i] += h;
    down[i] -= h;
    ASSERT_NEAR(gradient[i], (f(up) - f(down)) / (2 * h), tolerance) << "element " << i;
  }
}

inline double dot(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace isotrain::test
