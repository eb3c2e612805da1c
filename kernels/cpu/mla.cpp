#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mla.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/mla.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// dshared of rows [begin, end); `dk` holds the rope parts only.
template <class T, class Out>
HWY_INLINE void sum_over_heads(Matrix<Out> dshared, Heads<T const> dk, std::int64_t run, std::int64_t begin,
                               std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    for_blocks(dshared.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      Tree<F32x16> runs;
      for (std::int64_t first = 0; first < dk.heads; first += run) {
        F32x16 sum = splat(0);
        for (std::int64_t head = first; head < first + run; ++head) sum = sum + load_first(dk.at(row, head) + i, n);
        runs.add(sum);
      }
      store_first(runs.total(), dshared.row(row) + i, n);
    });
  }
}

template <class T>
void rounded_sum_over_heads(Matrix<T> dshared, Heads<T const> dk, std::int64_t run, std::int64_t begin,
                            std::int64_t end) {
  sum_over_heads(dshared, dk, run, begin, end);
}
template <class T>
void partial_sum_over_heads(Matrix<float> dshared, Heads<T const> dk, std::int64_t run, std::int64_t begin,
                            std::int64_t end) {
  sum_over_heads(dshared, dk, run, begin, end);
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

template <class K, class Nope, class Shared>
void check(Heads<K> k, Heads<Nope> nope, Matrix<Shared> shared) {
  expects(k.rows == nope.rows && k.rows == shared.rows && k.heads == nope.heads, "as many tokens and heads everywhere");
  expects(k.dim == nope.dim + shared.cols, "keys as wide as their two parts");
  expects(shared.col_stride == 1, "contiguous rows");
}

/// `sum` is one of the sums over heads above.
template <class T, class Out, class Sum>
void split_gradients(Cpu const& at, Heads<T> dnope, Matrix<Out> dshared, Heads<T const> dk, int slices, Sum sum) {
  check(dk, dnope, dshared);
  expects(slices >= 1 && dk.heads >= 1 && dk.heads % slices == 0, "slices of equally many heads");
  at.parallel_for(dk.rows, rows_per_piece(dk.heads * dk.dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t head = 0; head < dk.heads; ++head) {
        std::copy_n(dk.at(row, head), dnope.dim, dnope.at(row, head));
      }
      sum(dshared, dk.slice_dim(dnope.dim, dshared.cols), dk.heads / slices, row, row + 1);
    }
  });
}

}  // namespace

template <class T>
void mla_assemble_keys(Cpu const& at, Heads<T> k, Heads<T const> nope, Matrix<T const> shared) {
  check(k, nope, shared);
  at.parallel_for(k.rows, rows_per_piece(k.heads * k.dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t head = 0; head < k.heads; ++head) {
        std::copy_n(nope.at(row, head), nope.dim, k.at(row, head));
        std::copy_n(shared.row(row), shared.cols, k.at(row, head) + nope.dim);
      }
    }
  });
}

template <class T>
void mla_split_key_gradients(Cpu const& at, Heads<T> dnope, Matrix<T> dshared, Heads<T const> dk, int slices) {
  split_gradients(at, dnope, dshared, dk, slices, ISOTRAIN_DISPATCH(rounded_sum_over_heads<T>));
}

template <class T>
void mla_split_key_gradients_partial(Cpu const& at, Heads<T> dnope, Matrix<float> dshared_partial, Heads<T const> dk,
                                     int slices) {
  split_gradients(at, dnope, dshared_partial, dk, slices, ISOTRAIN_DISPATCH(partial_sum_over_heads<T>));
}

template void mla_assemble_keys(Cpu const&, Heads<float>, Heads<float const>, Matrix<float const>);
template void mla_assemble_keys(Cpu const&, Heads<bfloat16>, Heads<bfloat16 const>, Matrix<bfloat16 const>);
template void mla_split_key_gradients(Cpu const&, Heads<float>, Matrix<float>, Heads<float const>, int);
template void mla_split_key_gradients(Cpu const&, Heads<bfloat16>, Matrix<bfloat16>, Heads<bfloat16 const>, int);
template void mla_split_key_gradients_partial(Cpu const&, Heads<float>, Matrix<float>, Heads<float const>, int);
template void mla_split_key_gradients_partial(Cpu const&, Heads<bfloat16>, Matrix<float>, Heads<bfloat16 const>, int);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
