#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/selfcheck.h"
#include "lib/base/error.h"
#include "lib/base/matrix.h"
#include "lib/base/random.h"

/// The parts of the start-up check.
namespace isotrain::kernels::selfcheck {

/// Throws Error at the first element whose bits differ.
template <class T>
void expect_same(Matrix<T const> got, Matrix<T const> wanted, std::string const& what, std::string const& call) {
  for (std::int64_t r = 0; r < wanted.rows; ++r) {
    for (std::int64_t c = 0; c < wanted.cols; ++c) {
      T const a = got(r, c), b = wanted(r, c);
      if (std::bit_cast<std::array<char, sizeof(T)>>(a) == std::bit_cast<std::array<char, sizeof(T)>>(b)) continue;
      char values[96];
      std::snprintf(values, sizeof values, "element [%lld, %lld] is %a, not %a", static_cast<long long>(r),
                    static_cast<long long>(c), static_cast<double>(to_float(a)), static_cast<double>(to_float(b)));
      throw Error(
          what + " does not give the bits that it is defined to give", call + ": " + values,
          "is the processor, the build or a library that changes the floating-point mode at fault? no run here can be "
          "repeated elsewhere");
    }
  }
}

/// Numbers for which a sum in another order differs: N(0,1) * 2^U(-8,8).
template <class T>
std::vector<T> spread_numbers(std::int64_t count, std::uint64_t seed);

/// Every thread flushes subnormals. Throws Error.
void check_mode(Cpu const& at);

/// Sums of hashes of their results.
template <class T>
std::uint64_t check_product(Cpu const& at, ProductShape const& shape, ProductFunction<T> const& product);
template <class T>
std::uint64_t check_rows(Cpu const& at);

}  // namespace isotrain::kernels::selfcheck
