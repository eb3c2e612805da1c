// The start-up check of one matrix product.
#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "kernels/cpu/selfcheck_parts.h"
#include "kernels/reduce.h"

namespace isotrain::kernels::selfcheck {
namespace {

/// What element (row, column) is defined to be (kernels/matmul.h), in scalar code.
template <class T>
float defined_element(Bf16Class bf16, Matrix<T const> a, Matrix<T const> b, std::int64_t row, std::int64_t column,
                      MatmulSum sum) {
  std::int64_t const run = (a.cols + sum.slices - 1) / sum.slices;
  auto const step = [&](std::int64_t k, float c) { return std::fma(to_float(a(row, k)), to_float(b(k, column)), c); };
  auto const segment = [&](std::int64_t begin, std::int64_t end, float c) {
    if (std::is_same_v<T, float>) {
      for (std::int64_t k = begin; k < end; ++k) c = step(k, c);
    } else if (bf16 == Bf16Class::pairs) {
      for (std::int64_t k = begin; k < end; k += 2) {
        if (k + 1 < end) c = step(k + 1, c);
        c = step(k, c);
      }
    } else {
      for (std::int64_t block = begin; block < end; block += 32) {
        float chains[2] = {0, 0};
        for (std::int64_t k = block; k < std::min(end, block + 32); ++k) {
          chains[(k - block) % 2] = step(k, chains[(k - block) % 2]);
        }
        c = c + (chains[0] + chains[1]);
      }
    }
    return c;
  };
  std::vector<float> partial;
  for (std::int64_t begin = 0; begin < a.cols; begin += run) {
    std::int64_t const end = std::min(a.cols, begin + run);
    std::int64_t const leaf = sum.leaf > 0 ? sum.leaf : end - begin;
    float c = 0;
    for (std::int64_t k = begin; k < end; k += leaf) c = segment(k, std::min(end, k + leaf), c);
    partial.push_back(c);
  }
  // The tree over runs, level by level; a missing right operand leaves the left one.
  for (std::size_t distance = 1; distance < partial.size(); distance *= 2) {
    for (std::size_t i = 0; i + distance < partial.size(); i += 2 * distance) partial[i] += partial[i + distance];
  }
  return partial[0];
}

constexpr std::int64_t sizes[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65};
constexpr std::int64_t num_sizes = std::size(sizes);
constexpr std::int64_t most_rows = 201;     // of the product that all others are compared with
constexpr std::int64_t most_columns = 131;  //
constexpr std::int64_t widest = 8192;       // columns of one call as wide as the model's
constexpr std::int64_t row_shift = 7, column_shift = 3;

template <class T>
class ProductCheck {
 public:
  ProductCheck(Cpu const& at, ProductShape const& shape, ProductFunction<T> const& product)
      : at_(at),
        single_(1, at.bf16_class()),
        shape_(shape),
        product_(product),
        columns_(std::min(shape.n, most_columns)),
        wide_columns_(std::min(shape.n, widest)),
        // Rows of A, and columns of B, are overlapping windows of a list of numbers: much to multiply, little to
        // generate.
        left_(spread_numbers<T>(row_shift * most_rows + shape.k, 1)),
        right_(spread_numbers<T>(column_shift * wide_columns_ + shape.k, 2)),
        a_(left_.data(), most_rows, shape.k, row_shift),
        b_(right_.data(), shape.k, wide_columns_, 1, column_shift),
        wanted_numbers_(static_cast<std::size_t>(most_rows * columns_)),
        wanted_(wanted_numbers_.data(), most_rows, columns_) {
    product_(single_, {wanted_numbers_.data(), most_rows, columns_}, a_, b_.slice_cols(0, columns_), Accumulate::no,
             shape_.sum);
  }

  std::uint64_t run() const {
    definition();
    sizes_and_offsets();
    storage();
    threads();
    width();
    cuts();
    return hash(single_, wanted_numbers_, 0);
  }

 private:
  struct Part {
    std::int64_t row, rows, column, columns;
  };

  void compare(Matrix<float const> c, Part part, std::string const& call) const {
    expect_same<float>(c, wanted_.slice_rows(part.row, part.rows).slice_cols(part.column, part.columns),
                       "product '" + shape_.name + "' (N = " + std::to_string(shape_.n) +
                           ", K = " + std::to_string(shape_.k) + ", " + (std::is_same_v<T, float> ? "fp32)" : "bf16)"),
                       call + ", M = " + std::to_string(part.rows) + ", N = " + std::to_string(part.columns));
  }
  Matrix<T const> left(Part part) const { return a_.slice_rows(part.row, part.rows); }
  Matrix<T const> right(Part part) const { return b_.slice_cols(part.column, part.columns); }

  /// Elements all over the product, as scalar code computes them.
  void definition() const {
    // Small terms of a sum vanish beside later ones: it takes many elements to see each exchange.
    std::int64_t const elements = std::clamp<std::int64_t>((std::int64_t{1} << 18) / shape_.k, 64, 1000);
    for (std::int64_t i = 0; i < elements; ++i) {
      std::int64_t const row = i * 83 % most_rows, column = i * 29 % columns_;
      float const defined = defined_element(at_.bf16_class(), a_, b_, row, column, shape_.sum);
      compare({&defined, 1, 1}, {row, 1, column, 1},
              "scalar definition of [" + std::to_string(row) + ", " + std::to_string(column) + "] as element");
    }
  }

  void sizes_and_offsets() const {
    for (std::int64_t i = 0; i < num_sizes; ++i) {
      std::int64_t const rows = sizes[i], columns = std::min(columns_, sizes[(i * 4 + 1) % num_sizes]);
      Part const part{i * 11 % (most_rows - rows + 1), rows, i * 5 % (columns_ - columns + 1), columns};
      std::vector<float> c(static_cast<std::size_t>(rows * (columns + 3)), NAN);
      Matrix<float> const view(c.data(), rows, columns, columns + 3);
      product_(single_, view, left(part), right(part), Accumulate::no, shape_.sum);
      compare(view, part, "part of the rows and columns");
    }
  }

  /// The same numbers with other strides, and each operand transposed.
  void storage() const {
    Part const part{5, 33, 0, std::min<std::int64_t>(columns_, 48)};
    std::int64_t const k = shape_.k;
    std::vector<T> a(static_cast<std::size_t>(1 + k * (part.rows + 5))),
        b(static_cast<std::size_t>(1 + k * (part.columns + 3)));
    Matrix<T> const stored_a(a.data() + 1, part.rows, k, 1, part.rows + 5);
    Matrix<T> const stored_b(b.data() + 1, k, part.columns, part.columns + 3);
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t r = 0; r < part.rows; ++r) stored_a(r, i) = left(part)(r, i);
      for (std::int64_t c = 0; c < part.columns; ++c) stored_b(i, c) = right(part)(i, c);
    }
    std::vector<float> c(static_cast<std::size_t>((part.rows + 2) * part.columns), NAN);
    Matrix<float> const view(c.data(), part.rows, part.columns, 1, part.rows + 2);
    product_(single_, view, stored_a, stored_b, Accumulate::no, shape_.sum);
    compare(view, part, "other strides");
  }

  void threads() const {
    for (int threads : {2, at_.threads()}) {
      if (threads == 1) continue;
      std::vector<float> c(wanted_numbers_.size(), NAN);
      Part const part{0, most_rows, 0, columns_};
      Matrix<float> const view(c.data(), part.rows, part.columns);
      product_(Cpu(threads, at_.bf16_class()), view, left(part), right(part), Accumulate::no, shape_.sum);
      compare(view, part, std::to_string(threads) + " threads");
    }
  }

  void width() const {
    Part const part{3, 5, 0, columns_};
    std::vector<float> c(static_cast<std::size_t>(part.rows * wide_columns_), NAN);
    Matrix<float> const view(c.data(), part.rows, wide_columns_);
    product_(at_, view, left(part), b_, Accumulate::no, shape_.sum);
    compare(view.slice_cols(0, columns_), part, "first columns of " + std::to_string(wide_columns_));
  }

  /// K in several calls, at places where the sum may be cut.
  void cuts() const {
    if (shape_.sum.slices > 1) return;
    Part const part{1, 17, 0, std::min<std::int64_t>(columns_, 33)};
    std::vector<std::int64_t> places = {1, 16, 100};
    if (!std::is_same_v<T, float>) {
      places = at_.bf16_class() == Bf16Class::tiles ? std::vector<std::int64_t>{32, 96}
                                                    : std::vector<std::int64_t>{2, 16, 100};
    }
    std::int64_t const leaf = shape_.sum.leaf;
    if (leaf > 0) {
      if (!std::is_same_v<T, float>) std::erase_if(places, [&](std::int64_t place) { return place > leaf; });
      places.push_back(leaf);
    }
    for (std::int64_t place : places) {
      if (place >= shape_.k) continue;
      std::vector<float> c(static_cast<std::size_t>(part.rows * part.columns), NAN);
      Matrix<float> const view(c.data(), part.rows, part.columns);
      // Between the cut and the next leaf the sum goes on, so that the second call ends there.
      std::int64_t const next = leaf > 0 && place < leaf ? std::min(leaf, shape_.k) : shape_.k;
      std::int64_t begin = 0;
      for (std::int64_t end : {place, next, shape_.k}) {
        if (end <= begin) continue;
        product_(single_, view, left(part).slice_cols(begin, end - begin), right(part).slice_rows(begin, end - begin),
                 begin == 0 ? Accumulate::no : Accumulate::yes, shape_.sum);
        begin = end;
      }
      compare(view, part, "K cut at " + std::to_string(place));
    }
  }

  Cpu at_;
  Cpu single_;
  ProductShape const& shape_;
  ProductFunction<T> const& product_;
  std::int64_t columns_, wide_columns_;
  std::vector<T> left_, right_;
  Matrix<T const> a_, b_;
  std::vector<float> wanted_numbers_;
  Matrix<float const> wanted_;
};

}  // namespace

template <class T>
std::uint64_t check_product(Cpu const& at, ProductShape const& shape, ProductFunction<T> const& product) {
  return ProductCheck<T>(at, shape, product).run();
}
template std::uint64_t check_product(Cpu const&, ProductShape const&, ProductFunction<float> const&);
template std::uint64_t check_product(Cpu const&, ProductShape const&, ProductFunction<bfloat16> const&);

}  // namespace isotrain::kernels::selfcheck
