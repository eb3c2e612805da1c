#pragma once

#include <cstdint>

namespace isotrain {

/// A view of a matrix with any strides (in elements); owns nothing. T may be const.
/// Kernels that work on rows require col_stride == 1 and say so.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  Matrix() = default;
  Matrix(T* data, std::int64_t rows, std::int64_t cols) : Matrix(data, rows, cols, cols) {}
  Matrix(T* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride, std::int64_t col_stride = 1)
      : data(data), rows(rows), cols(cols), row_stride(row_stride), col_stride(col_stride) {}

  T& operator()(std::int64_t row, std::int64_t col) const { return data[row * row_stride + col * col_stride]; }
  T* row(std::int64_t index) const { return data + index * row_stride; }
  bool empty() const { return rows == 0 || cols == 0; }

  Matrix transposed() const { return {data, cols, rows, col_stride, row_stride}; }
  Matrix slice_rows(std::int64_t begin, std::int64_t count) const {
    return {data + begin * row_stride, count, cols, row_stride, col_stride};
  }
  Matrix slice_cols(std::int64_t begin, std::int64_t count) const {
    return {data + begin * col_stride, rows, count, row_stride, col_stride};
  }
  operator Matrix<T const>() const { return {data, rows, cols, row_stride, col_stride}; }
};

/// Per-head vectors of `rows` tokens: element (row, head, i) is data[row * row_stride + head * head_stride + i].
template <class T>
struct Heads {
  T* data = nullptr;
  std::int64_t rows = 0;  // tokens
  std::int64_t heads = 0;
  std::int64_t dim = 0;          // elements of one head, contiguous
  std::int64_t row_stride = 0;   // elements
  std::int64_t head_stride = 0;  // elements

  T* at(std::int64_t row, std::int64_t head) const { return data + row * row_stride + head * head_stride; }
  Heads slice_dim(std::int64_t begin, std::int64_t count) const {
    return {data + begin, rows, heads, count, row_stride, head_stride};
  }
  Heads slice_heads(std::int64_t begin, std::int64_t count) const {
    return {data + begin * head_stride, rows, count, dim, row_stride, head_stride};
  }
  operator Heads<T const>() const { return {data, rows, heads, dim, row_stride, head_stride}; }
};

}  // namespace isotrain
