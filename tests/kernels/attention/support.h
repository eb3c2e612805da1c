#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "lib/base/bfloat16.h"
#include "lib/base/matrix.h"

/// Inputs and outputs of attention for its tests.
namespace isotrain::kernels::test {

/// Heads with gaps of `gap` elements between heads and 3 * gap between rows, all set to a pattern that must stay in the
/// gaps.
template <class T>
class HeadStore {
 public:
  HeadStore(std::int64_t rows, std::int64_t heads, std::int64_t dim, std::int64_t gap = 0)
      : rows_(rows), heads_(heads), dim_(dim), gap_(gap) {
    std::int64_t const row_stride = heads * (dim + gap) + 3 * gap;
    data_.assign(static_cast<std::size_t>(rows * row_stride + 5), pattern());
    view_ = {data_.data() + (gap > 0 ? 5 : 0), rows, heads, dim, row_stride, dim + gap};
  }
  HeadStore(HeadStore const&) = delete;

  Heads<T> view() const { return view_; }
  Heads<T const> read() const { return view_; }
  T& at(std::int64_t row, std::int64_t head, std::int64_t i) const { return view_.at(row, head)[i]; }

  void fill(std::uint64_t seed, double spread = 1) const {
    std::mt19937_64 random(seed);
    for_each([&](T& x) {
      double sum = -6;  // close enough to a normal distribution
      for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
      x = from_float<T>(static_cast<float>(sum * spread));
    });
  }
  /// The elements without gaps.
  std::vector<T> elements() const {
    std::vector<T> all;
    for_each([&](T& x) { all.push_back(x); });
    return all;
  }
  std::vector<double> head(std::int64_t first_row, std::int64_t rows, std::int64_t head) const {
    std::vector<double> numbers;
    for (std::int64_t r = first_row; r < first_row + rows; ++r) {
      for (std::int64_t i = 0; i < dim_; ++i) numbers.push_back(to_float(at(r, head, i)));
    }
    return numbers;
  }
  bool gaps_untouched() const {
    std::size_t patterns = 0, written = 0;
    for (T const& x : data_) patterns += std::memcmp(&x, &pattern_, sizeof(T)) == 0;
    for_each([&](T& x) { written += std::memcmp(&x, &pattern_, sizeof(T)) != 0; });
    return written == static_cast<std::size_t>(rows_ * heads_ * dim_) && patterns + written == data_.size();
  }

 private:
  static T pattern() {
    if constexpr (sizeof(T) == 4) return std::bit_cast<float>(0x7fc12345u);
    if constexpr (sizeof(T) == 2) return {0x7fd5};
  }
  template <class F>
  void for_each(F const& f) const {
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        for (std::int64_t i = 0; i < dim_; ++i) f(view_.at(r, h)[i]);
      }
    }
  }

  std::int64_t rows_, heads_, dim_, gap_;
  std::vector<T> data_;
  Heads<T> view_;
  T pattern_ = pattern();
};

struct Case {
  char const* edge;
  std::int64_t B, T, H, G, dq, dv;
};

/// Inputs, outputs and gradients of one call.
template <class T>
struct Attention {
  explicit Attention(Case c, std::int64_t gap = 0, double spread = 1)
      : c(c),
        shape{c.B, c.T, 1.0F / std::sqrt(static_cast<float>(c.dq))},
        q(c.B * c.T, c.H, c.dq, gap),
        k(c.B * c.T, c.G, c.dq, gap),
        v(c.B * c.T, c.G, c.dv, gap),
        go(c.B * c.T, c.H, c.dv, gap),
        o(c.B * c.T, c.H, c.dv, gap),
        dq(c.B * c.T, c.H, c.dq, gap),
        dk(c.B * c.T, c.G, c.dq, gap),
        dv(c.B * c.T, c.G, c.dv, gap),
        lse(static_cast<std::size_t>(c.B * c.H * c.T), NAN) {
    q.fill(1, spread), k.fill(2, spread), v.fill(3), go.fill(4);
  }
  void forward(Cpu const& at) { attention_forward<T>(at, o.view(), lse, q.read(), k.read(), v.read(), shape); }
  void backward(Cpu const& at) {
    attention_backward<T>(at, dq.view(), dk.view(), dv.view(), go.read(), o.read(), lse, q.read(), k.read(), v.read(),
                          shape);
  }

  Case c;
  AttentionShape shape;
  HeadStore<T> q, k, v, go, o, dq, dk, dv;
  std::vector<float> lse;
};

/// "" if both hold the same bits, else the first element that differs.
template <class T>
std::string first_difference(std::vector<T> const& a, std::vector<T> const& b) {
  if (a.size() != b.size()) return "sizes differ";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      return "element " + std::to_string(i) + ": " + std::to_string(to_float(a[i])) + " against " +
             std::to_string(to_float(b[i]));
    }
  }
  return "";
}

/// The same of all results of two runs.
template <class T>
std::string first_difference(Attention<T> const& a, Attention<T> const& b) {
  auto named = [](char const* name, std::string const& text) { return text.empty() ? "" : name + (" " + text); };
  for (std::string const& text : {std::string(named("o", first_difference(a.o.elements(), b.o.elements()))),
                                  std::string(named("lse", first_difference(a.lse, b.lse))),
                                  std::string(named("dq", first_difference(a.dq.elements(), b.dq.elements()))),
                                  std::string(named("dk", first_difference(a.dk.elements(), b.dk.elements()))),
                                  std::string(named("dv", first_difference(a.dv.elements(), b.dv.elements())))}) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace isotrain::kernels::test
