// The cross-entropy with the vocabulary cut over ranks gives the bits of the whole one.
#include <gtest/gtest.h>

#include <bit>
#include <stdexcept>

#include "kernels/cross_entropy.h"
#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

template <class T>
class CrossEntropyPartsTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(CrossEntropyPartsTest, Types);

constexpr float factor = 0.125F;
constexpr float infinity = std::numeric_limits<float>::infinity();
float const nan = std::numeric_limits<float>::quiet_NaN();

template <class T>
struct Outputs {
  std::vector<float> loss;
  std::vector<T> dlogits;
};

/// NaN is NaN: its payload is no part of the contract.
template <class T>
bool same_numbers(std::vector<T> a, std::vector<T> b) {
  for (auto* values : {&a, &b}) {
    for (T& v : *values) {
      if (std::isnan(to_float(v))) v = from_float<T>(nan);
    }
  }
  return same_bits(a, b);
}
template <class T>
bool same(Outputs<T> const& a, Outputs<T> const& b) {
  return same_numbers(a.loss, b.loss) && same_numbers(a.dlogits, b.dlogits);
}

/// Exact maximum by IEEE 754 totalOrder, as between ranks.
void combine(std::vector<float>& all, std::vector<float> const& one) {
  auto const key = [](float x) {
    auto const bits = std::bit_cast<std::int32_t>(x);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
  };
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = key(one[i]) > key(all[i]) ? one[i] : all[i];
}

struct Case {
  std::int64_t rows, vocabulary;
  std::vector<float> logits;
  std::vector<std::int32_t> target;

  Case(std::int64_t r, std::int64_t v) : rows(r), vocabulary(v), logits(random_values<float>(r * v, 1, 3)) {
    for (std::int64_t n = 0; n < r; ++n)
      target.push_back(static_cast<std::int32_t>(n % 4 == 3 ? ignored_target : n * 7 % v));
  }

  template <class T>
  Outputs<T> whole(int slices) const {
    Outputs<T> out{std::vector<float>(rows), std::vector<T>(rows * vocabulary)};
    cross_entropy_forward_backward<T>(Cpu(1), out.loss, {out.dlogits.data(), rows, vocabulary},
                                      {logits.data(), rows, vocabulary}, target, slices, factor);
    return out;
  }

  /// Rank r has slices [ends[r - 1], ends[r]). `spoil` changes what is gathered.
  template <class T>
  Outputs<T> cut(Cpu const& at, int slices, std::vector<int> const& ends,
                 std::function<void(Matrix<float>)> const& spoil = {}) const {
    std::vector<VocabularyPart> parts;
    for (int const end : ends) {
      parts.push_back({vocabulary, slices, parts.empty() ? 0 : parts.back().end_slice, end});
    }
    auto const of_part = [&](VocabularyPart const& part) {
      std::vector<float> own;
      for (std::int64_t n = 0; n < rows; ++n) {
        own.insert(own.end(), logits.begin() + n * vocabulary + part.begin(),
                   logits.begin() + n * vocabulary + part.end());
      }
      return own;
    };
    std::vector<float> max(rows, -infinity), chosen(rows, -infinity), max_here(rows), chosen_here(rows);
    for (auto const& part : parts) {
      Padded<float> own(rows, part.columns(), 1, of_part(part));
      cross_entropy_max(at, max_here, chosen_here, own.view(), target, part);
      combine(max, max_here);
      combine(chosen, chosen_here);
    }
    std::vector<float> sums(rows * slices, 1e9F);
    Matrix<float> const gathered(sums.data(), rows, slices, 1, rows);
    for (auto const& part : parts) {
      Padded<float> own(rows, part.columns(), 1, of_part(part));
      cross_entropy_sums(at, gathered.slice_cols(part.first_slice, part.num_slices()), own.view(), max, target, part);
    }
    if (spoil) spoil(gathered);
    Outputs<T> out{{}, std::vector<T>(rows * vocabulary)};
    for (auto const& part : parts) {
      Padded<float> own(rows, part.columns(), 1, of_part(part));
      Padded<T> d(rows, part.columns(), 1);
      std::vector<float> loss(rows, 5.0F), loss_alone(rows, 6.0F);
      cross_entropy_finish<T>(at, loss, d.view(), own.view(), max, gathered, chosen, target, part, factor);
      cross_entropy_finish<T>(at, loss_alone, {}, own.view(), max, gathered, chosen, target, part, factor);
      EXPECT_TRUE(d.padding_is_untouched());
      EXPECT_TRUE(same_numbers(loss, loss_alone));
      EXPECT_TRUE(out.loss.empty() || same_numbers(out.loss, loss)) << "ranks agree about the loss";
      out.loss = loss;
      auto const values = d.values();
      for (std::int64_t i = 0; i < rows * part.columns(); ++i) {
        out.dlogits[i / part.columns() * vocabulary + part.begin() + i % part.columns()] = values[i];
      }
    }
    return out;
  }
};

/// Every way to give `slices` slices to ranks: consecutive groups.
std::vector<std::vector<int>> groupings(int slices) {
  std::vector<std::vector<int>> all;
  for (int cuts = 0; cuts < 1 << (slices - 1); ++cuts) {
    std::vector<int> ends;
    for (int s = 1; s < slices; ++s) {
      if (cuts >> (s - 1) & 1) ends.push_back(s);
    }
    ends.push_back(slices);
    all.push_back(ends);
  }
  return all;
}

TYPED_TEST(CrossEntropyPartsTest, EveryCutGivesTheBitsOfTheWhole) {
  for (std::int64_t const v : {1, 2, 5, 7, 33, 131}) {
    Case const c(6, v);
    for (int slices = 1; slices <= 5; ++slices) {
      auto const whole = c.whole<TypeParam>(slices);
      for (auto const& ends : groupings(slices)) {
        EXPECT_TRUE(same(c.cut<TypeParam>(Cpu(1), slices, ends), whole)) << v << " " << slices;
      }
    }
  }
}

TYPED_TEST(CrossEntropyPartsTest, OnEveryPlace) {
  Case const c(9, 3001);
  auto const whole = c.whole<TypeParam>(4);
  on_every_place([&](Cpu const& at) {
    EXPECT_TRUE(same(c.cut<TypeParam>(at, 4, {1, 4}), whole));
    EXPECT_TRUE(same(c.cut<TypeParam>(at, 4, {1, 1, 2, 3, 4}), whole)) << "a rank without slices";
  });
}

TYPED_TEST(CrossEntropyPartsTest, OtherSlicesOrOtherSumsShow) {
  Case const c(40, 500);
  EXPECT_FALSE(same(c.cut<TypeParam>(Cpu(1), 4, {2, 4}), c.whole<TypeParam>(1)));
  auto const spoil = [](Matrix<float> sums) { sums(1, 3) = std::nextafter(sums(1, 3), infinity) * 1.01F; };
  EXPECT_FALSE(same(c.cut<TypeParam>(Cpu(1), 4, {2, 4}, spoil), c.whole<TypeParam>(4)));
  // Slices without columns are not read: 5 columns in 4 slices of 2.
  Case const few(3, 5);
  auto const empty = [](Matrix<float> sums) { sums(0, 3) = nan; };
  EXPECT_TRUE(same(few.cut<TypeParam>(Cpu(1), 4, {3, 4}, empty), few.whole<TypeParam>(4)));
}

TYPED_TEST(CrossEntropyPartsTest, NotANumberAndInfinityAsInTheWhole) {
  Case base(1, 37);
  for (std::int64_t const at : {0, 15, 16, 36}) {
    for (float const special : {nan, -nan, infinity, -infinity, -0.0F}) {
      for (std::int32_t const target : {0, 16, 36, static_cast<int>(ignored_target)}) {
        Case c = base;
        c.logits[at] = special;
        c.target[0] = target;
        auto const whole = c.whole<TypeParam>(3);
        EXPECT_EQ(std::isnan(whole.loss[0]), target != ignored_target && !(special <= 0));
        for (auto const& ends : groupings(3)) {
          EXPECT_TRUE(same(c.cut<TypeParam>(Cpu(1), 3, ends), whole)) << at << " " << special << " " << target;
        }
      }
    }
  }
  Case c = base;
  c.logits.assign(37, -infinity);
  EXPECT_TRUE(same(c.cut<TypeParam>(Cpu(1), 3, {1, 2, 3}), c.whole<TypeParam>(3)));
}

TEST(CrossEntropyParts, GradientMayOverwriteTheLogits) {
  Case const c(5, 37);
  VocabularyPart const part{37, 2, 0, 2};
  auto buffer = c.logits;
  std::vector<float> max(5), chosen(5), sums(10), loss(5);
  Matrix<float> const m(buffer.data(), 5, 37);
  cross_entropy_max(Cpu(1), max, chosen, m, c.target, part);
  cross_entropy_sums(Cpu(1), {sums.data(), 5, 2}, m, max, c.target, part);
  cross_entropy_finish<float>(Cpu(1), loss, m, m, max, Matrix<float>(sums.data(), 5, 2), chosen, c.target, part,
                              factor);
  EXPECT_TRUE(same_bits(buffer, c.whole<float>(2).dlogits));
}

TYPED_TEST(CrossEntropyPartsTest, NothingAndRefusals) {
  using T = TypeParam;
  EXPECT_TRUE((Case(0, 5).cut<T>(Cpu(2), 2, {1, 2}).loss.empty()));
  std::vector<float> logits(10), two(2), three(3), sums(6);
  std::vector<T> d(10);
  std::vector<std::int32_t> const good = {0, 4}, high = {0, 5}, negative = {0, -1}, one = {0};
  VocabularyPart const part{5, 2, 0, 1}, last{5, 2, 1, 2}, wrong{5, 2, 1, 3}, backwards{5, 2, 1, 0};
  Matrix<float> const m(logits.data(), 2, 3), s(sums.data(), 2, 2);
  Matrix<T> const g(d.data(), 2, 3);
  auto const finish = [&](Matrix<T> gradient, Matrix<float> all, std::span<float> loss) {
    cross_entropy_finish<T>(Cpu(1), loss, gradient, m, two, all, two, good, part, 1);
  };
  EXPECT_NO_THROW(cross_entropy_max(Cpu(1), two, two, m, good, part));
  for (auto const& bad : {high, negative, one}) {
    EXPECT_THROW(cross_entropy_max(Cpu(1), two, two, m, bad, part), std::logic_error);
  }
  for (auto const& bad : {last, wrong, backwards}) {
    EXPECT_THROW(cross_entropy_max(Cpu(1), two, two, m, good, bad), std::logic_error);
  }
  EXPECT_THROW(cross_entropy_max(Cpu(1), three, two, m, good, part), std::logic_error);
  EXPECT_THROW(cross_entropy_max(Cpu(1), two, three, m, good, part), std::logic_error);
  EXPECT_THROW(cross_entropy_max(Cpu(1), two, two, Matrix<float>(logits.data(), 2, 3, 1, 2), good, part),
               std::logic_error);
  EXPECT_NO_THROW(cross_entropy_sums(Cpu(1), s.slice_cols(0, 1), m, two, good, part));
  EXPECT_THROW(cross_entropy_sums(Cpu(1), s, m, two, good, part), std::logic_error);
  EXPECT_NO_THROW(finish(g, s, two));
  EXPECT_THROW(finish(g.slice_cols(0, 2), s, two), std::logic_error);
  EXPECT_THROW(finish(g, s.slice_cols(0, 1), two), std::logic_error);
  EXPECT_THROW(finish(g, s, three), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
