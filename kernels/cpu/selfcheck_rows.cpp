// The start-up check of normalisation, activation and attention: a row does not depend on the rows beside it.
#include <cmath>

#include "kernels/attention.h"
#include "kernels/cpu/selfcheck_parts.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/swiglu.h"

namespace isotrain::kernels::selfcheck {
namespace {

template <class T>
std::uint64_t hash_of(std::vector<T> const& x, std::uint64_t position) {
  Cpu const single;
  std::vector<float> wide(x.size());
  convert(single, wide, x);
  return hash(single, wide, position << 32);
}

constexpr std::int64_t rows = 37, width = 83;

template <class T>
Matrix<T> matrix(std::vector<T>& x) {
  return {x.data(), rows, width};
}

template <class T>
std::uint64_t check_rmsnorm(Cpu const& at) {
  std::vector<T> x = spread_numbers<T>(rows * width, 3), y(x.size()), again(x.size());
  std::vector<float> const gain = spread_numbers<float>(width, 4);
  std::vector<float> rstd(rows);
  rmsnorm_forward<T>(at, matrix(y), rstd, matrix(x), gain, 1e-6F);
  for (std::int64_t r = 0; r < rows; ++r) {
    rmsnorm_forward<T>(at, matrix(again).slice_rows(r, 1), std::span(rstd).subspan(r, 1), matrix(x).slice_rows(r, 1),
                       gain, 1e-6F);
  }
  expect_same<T>(matrix(again), matrix(y), "normalisation", "row by row");
  return hash_of(y, 1);
}

template <class T>
std::uint64_t check_swiglu(Cpu const& at) {
  std::vector<T> gate = spread_numbers<T>(rows * width, 5), up = spread_numbers<T>(rows * width, 6);
  std::vector<T> y(gate.size()), again(gate.size());
  swiglu_forward<T>(at, matrix(y), matrix(gate), matrix(up));
  for (std::int64_t r = 0; r < rows; ++r) {
    swiglu_forward<T>(at, matrix(again).slice_rows(r, 1), matrix(gate).slice_rows(r, 1), matrix(up).slice_rows(r, 1));
  }
  expect_same<T>(matrix(again), matrix(y), "activation", "row by row");
  return hash_of(y, 2);
}

/// Each token decoded from a cache against all tokens at once, and the gradients' fingerprint.
template <class T>
std::uint64_t check_attention(Cpu const& at) {
  constexpr std::int64_t tokens = 70, heads = 2, dq = 24, dv = 16;
  auto view = [](std::vector<T>& x, std::int64_t count, std::int64_t dim) {
    return Heads<T>{x.data(), tokens, count, dim, count * dim, dim};
  };
  auto q = spread_numbers<T>(tokens * heads * dq, 7), k = spread_numbers<T>(tokens * dq, 8);
  auto v = spread_numbers<T>(tokens * dv, 9), d_o = spread_numbers<T>(tokens * heads * dv, 10);
  std::vector<T> o(d_o.size()), again(d_o.size()), d_q(q.size()), d_k(k.size()), d_v(v.size());
  std::vector<float> lse(tokens * heads);
  AttentionShape const shape{1, tokens, 0.2F};
  Cpu const single(1, at.bf16_class());
  attention_forward<T>(at, view(o, heads, dv), lse, view(q, heads, dq), view(k, 1, dq), view(v, 1, dv), shape);
  for (std::int64_t t : {0, 1, 15, 16, 17, 31, 32, 63, 64, 69}) {
    auto row = [&](Heads<T> x) { return Heads<T>{x.at(t, 0), 1, x.heads, x.dim, x.row_stride, x.head_stride}; };
    auto cache = [&](Heads<T> x) { return Heads<T>{x.data, t + 1, x.heads, x.dim, x.row_stride, x.head_stride}; };
    attention_decode<T>(single, row(view(again, heads, dv)), row(view(q, heads, dq)), cache(view(k, 1, dq)),
                        cache(view(v, 1, dv)), shape.scale);
    Matrix<T const> const got(again.data(), tokens, heads * dv), wanted(o.data(), tokens, heads * dv);
    expect_same<T>(got.slice_rows(t, 1), wanted.slice_rows(t, 1), "attention", "token " + std::to_string(t) + " alone");
  }
  attention_backward<T>(at, view(d_q, heads, dq), view(d_k, 1, dq), view(d_v, 1, dv), view(d_o, heads, dv),
                        view(o, heads, dv), lse, view(q, heads, dq), view(k, 1, dq), view(v, 1, dv), shape);
  return hash_of(o, 3) + hash_of(d_q, 4) + hash_of(d_k, 5) + hash_of(d_v, 6);
}

}  // namespace

template <class T>
std::uint64_t check_rows(Cpu const& at) {
  std::uint64_t const sum = check_rmsnorm<T>(at) + check_swiglu<T>(at) + check_attention<T>(at);
  return sizeof(T) == sizeof(float) ? sum : sum * 3;  // odd: the two precisions do not change places
}
template std::uint64_t check_rows<float>(Cpu const&);
template std::uint64_t check_rows<bfloat16>(Cpu const&);

}  // namespace isotrain::kernels::selfcheck
