#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/embedding.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Columns [begin, end) of all tokens, in order.
template <class T>
void embedding_backward_columns(Matrix<float> dtable, Matrix<T const> dy, std::int32_t const* token, std::int64_t begin,
                                std::int64_t end) {
  for (std::int64_t row = 0; row < dy.rows; ++row) {
    if (token[row] == absent_token) continue;
    float* const sum = dtable.row(token[row]);
    T const* const term = dy.row(row);
    for_blocks(begin, end, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      store_first(load_first(sum + i, n) + load_first(term + i, n), sum + i, n);
    });
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

template <class Y, class Table>
void check(Matrix<Y> y, Matrix<Table> table, std::span<std::int32_t const> token) {
  expects(y.cols == table.cols, "table and activations of one width");
  expects(y.col_stride == 1 && table.col_stride == 1, "contiguous rows");
  expects(token.size() == static_cast<std::size_t>(y.rows), "one token for each row");
  for (std::int32_t const t : token) {
    expects(t == absent_token || (t >= 0 && t < table.rows), "tokens inside the vocabulary");
  }
}

}  // namespace

template <class T>
void embedding_forward(Cpu const& at, Matrix<T> y, Matrix<T const> table, std::span<std::int32_t const> token) {
  check(y, table, token);
  at.parallel_for(y.rows, rows_per_piece(y.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (token[row] != absent_token) std::copy_n(table.row(token[row]), y.cols, y.row(row));
    }
  });
}

template <class T>
void embedding_backward(Cpu const& at, Matrix<float> dtable, Matrix<T const> dy, std::span<std::int32_t const> token) {
  check(dy, dtable, token);
  // Threads share the columns: each goes through the tokens in order, so that no sort is needed.
  at.parallel_for(dy.cols, 4 * 16, [&](std::int64_t begin, std::int64_t end) {
    ISOTRAIN_DISPATCH(embedding_backward_columns<T>)(dtable, dy, token.data(), begin, end);
  });
}

template void embedding_forward(Cpu const&, Matrix<float>, Matrix<float const>, std::span<std::int32_t const>);
template void embedding_forward(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, std::span<std::int32_t const>);
template void embedding_backward(Cpu const&, Matrix<float>, Matrix<float const>, std::span<std::int32_t const>);
template void embedding_backward(Cpu const&, Matrix<float>, Matrix<bfloat16 const>, std::span<std::int32_t const>);

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
