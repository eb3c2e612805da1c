#pragma once

#include <cstdint>

/// What every micro-kernel of the matrix product is given.
namespace isotrain::kernels::gemm {

/// A tile of C to start from (null: +0) and one to write; they may be the same.
struct TileInOut {
  float const* in = nullptr;
  std::int64_t in_stride = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

/// Memory that will be needed soon, fetched line by line at the pace of a kernel's loop: all at once would fill the
/// processor's few buffers for misses and stall the kernel. Worth a fifth of the speed where C or B's panels lie beyond
/// the second-level cache.
class Ahead {
 public:
  Ahead() = default;
  /// `lines` lines: the first and the last of each row of `row_bytes`.
  Ahead(void const* first, std::int64_t row_stride_bytes, std::int64_t row_bytes, std::int64_t lines)
      : at_(reinterpret_cast<std::uintptr_t>(first)), stride_(row_stride_bytes), last_(row_bytes - 1), lines_(lines) {}

  std::int64_t lines() const { return lines_; }

  template <int write, int locality>
  [[gnu::always_inline]] void fetch_next() {
    if (lines_ == 0) return;
    --lines_;
    __builtin_prefetch(reinterpret_cast<void const*>(at_), write, locality);
    at_ += static_cast<std::uintptr_t>(to_last_ ? stride_ - last_ : last_);
    to_last_ = !to_last_;
  }

 private:
  std::uintptr_t at_ = 0;
  std::int64_t stride_ = 0;
  std::int64_t last_ = 0;
  std::int64_t lines_ = 0;
  bool to_last_ = false;
};

/// What a kernel fetches for those after it: the next tile of C, and its share of the next panel of B.
struct Next {
  Ahead c;
  Ahead b;

  /// Calls of fetch() after which nothing is left.
  std::int64_t lines() const { return c.lines() > b.lines() ? c.lines() : b.lines(); }

  [[gnu::always_inline]] void fetch() {
    c.fetch_next<1, 3>();
    b.fetch_next<0, 2>();
  }
};

}  // namespace isotrain::kernels::gemm
