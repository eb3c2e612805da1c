#include "kernels/selfcheck.h"

#include <cmath>
#include <set>
#include <tuple>

#include "kernels/cpu/selfcheck_parts.h"

namespace isotrain::kernels {
namespace selfcheck {

template <class T>
std::vector<T> spread_numbers(std::int64_t count, std::uint64_t seed) {
  Random const sign_and_size(seed, "selfcheck.normal"), power(seed, "selfcheck.power");
  std::vector<T> numbers(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < numbers.size(); ++i) {
    double const exponent = 16.0 * power.uniform(i) - 8.0;
    numbers[i] = from_float<T>(static_cast<float>(std::ldexp(sign_and_size.normal(i), std::lround(exponent))));
  }
  return numbers;
}
template std::vector<float> spread_numbers(std::int64_t, std::uint64_t);
template std::vector<bfloat16> spread_numbers(std::int64_t, std::uint64_t);

void check_mode(Cpu const& at) {
  at.parallel_for(at.threads(), 1, [](std::int64_t, std::int64_t) {
    float const volatile tiny = 0x1p-126F, half = 0.5F;
    float const volatile subnormal = tiny * half;
    if (!FlushToZero::active() || subnormal != 0) {
      throw Error("a thread of this process keeps subnormal numbers", "the numerics contract flushes them to zero",
                  "does a library change the floating-point mode?");
    }
  });
}

}  // namespace selfcheck

std::vector<ProductShape> linear_products(std::string const& name, std::int64_t out, std::int64_t in,
                                          ProductInput input, int forward_slices, int backward_slices,
                                          std::int64_t tokens, std::int64_t leaf) {
  return {{name + " forward", out, in, input, {forward_slices, 0}},
          {name + " input gradient", in, out, input, {backward_slices, 0}},
          {name + " weight gradient", in, tokens, input, {1, leaf}}};
}

std::uint64_t numerics_selfcheck(Cpu const& at, std::span<ProductShape const> products,
                                 CheckedProducts const& checked) {
  FlushToZero const mode;  // the definitions are computed in this thread
  selfcheck::check_mode(at);
  std::uint64_t fingerprint = selfcheck::check_rows<float>(at) + selfcheck::check_rows<bfloat16>(at);
  std::set<std::tuple<std::int64_t, std::int64_t, ProductInput, int, std::int64_t>> done;
  for (ProductShape const& shape : products) {
    expects(shape.n >= 1 && shape.k >= 1, "a product has at least one column and one step");
    if (!done.emplace(shape.n, shape.k, shape.input, shape.sum.slices, shape.sum.leaf).second) continue;
    fingerprint = fingerprint * 0x9e3779b97f4a7c15u;  // odd: the order of products counts, nothing is lost
    fingerprint += shape.input == ProductInput::fp32 ? selfcheck::check_product<float>(at, shape, checked.fp32)
                                                     : selfcheck::check_product<bfloat16>(at, shape, checked.bf16);
  }
  return fingerprint;
}

}  // namespace isotrain::kernels
