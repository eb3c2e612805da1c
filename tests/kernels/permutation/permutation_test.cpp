#include "kernels/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "tests/support/kernel_test.h"

namespace isotrain::kernels::test {
namespace {

using namespace isotrain::test;

/// Different experts for each token, in no order; expert 3 gets none.
struct Plan {
  std::int64_t rows, top_k, sample_rows;
  int experts;
  std::vector<std::int32_t> expert, row, order;
  std::vector<std::int64_t> offsets;

  Plan(std::int64_t n, std::int64_t k, int e, std::int64_t sample)
      : rows(n), top_k(k), sample_rows(sample), experts(e), row(n * k), order(n * k), offsets(e * (n / sample) + 1) {
    for (std::int64_t token = 0; token < n; ++token) {
      std::vector<std::int32_t> ids;
      for (int id = 0; id < e; ++id) {
        if (id != 3) ids.push_back(id);
      }
      for (std::int64_t i = 0; i < k; ++i) {
        auto const pick = Random(1, 2).bits(token * 64 + i) % ids.size();
        expert.push_back(ids[pick]);
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(pick));
      }
    }
    permutation_sort(offsets, rows_view(), order_view(), {expert.data(), rows, top_k, top_k}, experts, sample_rows);
  }
  Matrix<std::int32_t> rows_view() { return {row.data(), rows, top_k}; }
  Matrix<std::int32_t> order_view() { return {order.data(), rows, top_k}; }
};

TEST(PermutationSort, IsTheStableSortByExpertSampleAndPosition) {
  for (auto const& [n, k, e, sample] :
       {std::tuple<int, int, int, int>{24, 3, 8, 6}, {24, 1, 5, 24}, {8, 6, 7, 1}, {1, 1, 1, 1}}) {
    Plan const plan(n, k, e, sample);
    int const samples = n / sample;
    struct Choice {
      int expert, sample, token, k;
    };
    std::vector<Choice> choices;
    for (int i = 0; i < n * k; ++i) choices.push_back({plan.expert[i], i / k / sample, i / k, i % k});
    std::stable_sort(choices.begin(), choices.end(), [](Choice const& a, Choice const& b) {
      return std::tie(a.expert, a.sample, a.token) < std::tie(b.expert, b.sample, b.token);
    });
    for (int r = 0; r < n * k; ++r) EXPECT_EQ(plan.row[choices[r].token * k + choices[r].k], r);
    for (int s = 0; s <= e * samples; ++s) {
      std::int64_t const before = std::count_if(choices.begin(), choices.end(),
                                                [&](Choice const& c) { return c.expert * samples + c.sample < s; });
      EXPECT_EQ(plan.offsets[s], before);
    }
    for (int token = 0; token < n; ++token) {
      for (int i = 1; i < k; ++i) {
        auto const at = [&](int place) { return plan.expert[token * k + plan.order[token * k + place]]; };
        EXPECT_LT(at(i - 1), at(i));
      }
    }
  }
}

TEST(PermutationSort, NothingAndRefusals) {
  std::vector<std::int32_t> expert = {0, 1, 2, 0}, row(4), order(4);
  std::vector<std::int64_t> offsets(7), one(1, 5);
  Matrix<std::int32_t> const r(row.data(), 2, 2), o(order.data(), 2, 2), e(expert.data(), 2, 2);
  EXPECT_NO_THROW(permutation_sort(offsets, r, o, e, 3, 1));
  EXPECT_THROW(permutation_sort(offsets, r, o, e, 3, 2), std::logic_error);
  EXPECT_THROW(permutation_sort(offsets, r, o, e, 2, 1), std::logic_error);
  EXPECT_THROW(permutation_sort(offsets, r, o, e, 3, 3), std::logic_error);
  EXPECT_THROW(permutation_sort(offsets, r, o.slice_rows(0, 1), e, 3, 1), std::logic_error);
  offsets.resize(5);
  EXPECT_THROW(permutation_sort(offsets, r, o, e, 2, 1), std::logic_error);  // expert 2
  permutation_sort(one, r.slice_rows(0, 0), o.slice_rows(0, 0), e.slice_rows(0, 0), 3, 4);
  EXPECT_EQ(one[0], 0);
}

template <class T>
class PermutationTest : public testing::Test {};
using Types = testing::Types<float, bfloat16>;
TYPED_TEST_SUITE(PermutationTest, Types);

template <class T>
struct Case {
  Plan plan;
  std::int64_t d;
  std::vector<T> x, residual, shared, routed;
  std::vector<float> weight;

  explicit Case(std::int64_t width, std::int64_t n = 12, std::int64_t k = 3)
      : plan(n, k, 8, n / 2),
        d(width),
        x(random_values<T>(n * d, 1)),
        residual(random_values<T>(n * d, 2)),
        shared(random_values<T>(n * d, 3)),
        routed(random_values<T>(n * k * d, 4)),
        weight(random_values<float>(n * k, 5)) {}

  struct Outputs {
    std::vector<T> gathered, dx, dx_added, y, y_alone, drouted;
    std::vector<float> dweight;
    bool operator==(Outputs const& o) const {
      return same_bits(gathered, o.gathered) && same_bits(dx, o.dx) && same_bits(dx_added, o.dx_added) &&
             same_bits(y, o.y) && same_bits(y_alone, o.y_alone) && same_bits(drouted, o.drouted) &&
             same_bits(dweight, o.dweight);
    }
  };

  Outputs run(Cpu const& at, std::int64_t padding = 0) {
    std::int64_t const n = plan.rows, k = plan.top_k;
    auto const row = plan.rows_view(), order = plan.order_view();
    Padded<T> px(n, d, padding, x), pres(n, d, padding, residual), psh(n, d, 1, shared),
        prouted(n * k, d, padding, routed);
    Padded<T> gathered(n * k, d, padding), dx(n, d, padding), dx_added(n, d, padding, x), y(n, d, 2),
        y_alone(n, d, padding);
    Padded<T> drouted(n * k, d, padding);
    Padded<float> w(n, k, padding, weight), dw(n, k, padding);
    permutation_gather<T>(at, gathered.view(), px.view(), row);
    permutation_gather_backward<T>(at, dx.view(), prouted.view(), row, order, Accumulate::no);
    permutation_gather_backward<T>(at, dx_added.view(), prouted.view(), row, order, Accumulate::yes);
    permutation_combine<T>(at, y.view(), pres.view(), psh.view(), prouted.view(), w.view(), row, order);
    permutation_combine<T>(at, y_alone.view(), pres.view(), {}, prouted.view(), w.view(), row, order);
    permutation_combine_backward<T>(at, drouted.view(), dw.view(), px.view(), prouted.view(), w.view(), row);
    for (auto* m : {&gathered, &dx, &dx_added, &y, &y_alone, &drouted}) EXPECT_TRUE(m->padding_is_untouched());
    return {gathered.values(), dx.values(),      dx_added.values(), y.values(),
            y_alone.values(),  drouted.values(), dw.values()};
  }

  /// Plain scalar forms of what the header states.
  Outputs stated() const {
    std::int64_t const n = plan.rows, k = plan.top_k;
    Outputs out{std::vector<T>(n * k * d), {}, {}, {}, {}, std::vector<T>(n * k * d), std::vector<float>(n * k)};
    for (std::int64_t token = 0; token < n; ++token) {
      std::vector<std::int64_t> by_expert(k);
      for (std::int64_t i = 0; i < k; ++i) by_expert[i] = i;
      std::sort(by_expert.begin(), by_expert.end(),
                [&](auto a, auto b) { return plan.expert[token * k + a] < plan.expert[token * k + b]; });
      std::vector<float> parts(k * 16);
      for (std::int64_t j = 0; j < d; ++j) {
        std::int64_t const i = token * d + j;
        float gradient = 0, sum = to_float(shared[i]), sum_alone = 0;
        for (std::int64_t const choice : by_expert) {
          std::int64_t const r = plan.row[token * k + choice] * d + j;
          float const value = to_float(routed[r]), w = weight[token * k + choice];
          gradient = gradient + value;
          sum = sum + w * value;
          sum_alone = sum_alone + w * value;
          out.gathered[r] = x[i];
          out.drouted[r] = from_float<T>(w * to_float(x[i]));
          parts[choice * 16 + j % 16] = std::fma(to_float(x[i]), value, parts[choice * 16 + j % 16]);
        }
        out.dx.push_back(from_float<T>(gradient));
        out.dx_added.push_back(from_float<T>(gradient + to_float(x[i])));
        out.y.push_back(from_float<T>(to_float(residual[i]) + sum));
        out.y_alone.push_back(from_float<T>(to_float(residual[i]) + sum_alone));
      }
      for (std::int64_t choice = 0; choice < k; ++choice) {
        float* const p = &parts[choice * 16];
        for (int distance = 8; distance > 0; distance /= 2) {
          for (int i = 0; i < distance; ++i) p[i] = p[i] + p[i + distance];
        }
        out.dweight[token * k + choice] = p[0];
      }
    }
    return out;
  }
};

TYPED_TEST(PermutationTest, IsExactlyWhatTheHeaderStates) {
  for (std::int64_t const d : {1, 15, 16, 17, 33, 2000}) {
    Case<TypeParam> c(d);
    auto const expected = c.stated();
    on_every_place([&](Cpu const& at) {
      for (int const padding : {0, 1, 16}) EXPECT_TRUE(c.run(at, padding) == expected) << d;
    });
    c.routed[0] = from_float<TypeParam>(to_float(c.routed[0]) + 1);  // the comparison can fail
    EXPECT_FALSE(c.run(Cpu(1)) == expected);
  }
}

/// In double, y = residual + shared + sum of weight * routed: its derivatives are what the backward kernels give.
TEST(Permutation, BackwardIsTheDerivative) {
  Case<float> c(5);
  auto const out = c.run(Cpu(1));
  auto const dy = to_doubles(c.x);
  auto const k = static_cast<std::size_t>(c.plan.top_k);
  auto const y = [&](std::vector<double> const& routed, std::vector<double> const& weight) {
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      for (std::size_t choice = i / 5 * k; choice < (i / 5 + 1) * k; ++choice) {
        sum += dy[i] * weight[choice] * routed[c.plan.row[choice] * 5 + i % 5];
      }
    }
    return sum;
  };
  auto const routed = to_doubles(c.routed), weight = to_doubles(c.weight);
  // The kernel's gradients round: products of numbers below 4, sums of 5 of them.
  expect_gradient([&](std::vector<double> const& v) { return y(v, weight); }, routed, to_doubles(out.drouted), 1e-5);
  expect_gradient([&](std::vector<double> const& v) { return y(routed, v); }, weight, to_doubles(out.dweight), 1e-5);
  auto const gather = [&](std::vector<double> const& x) {
    double sum = 0;
    for (std::size_t choice = 0; choice < c.plan.row.size(); ++choice) {
      for (std::size_t j = 0; j < 5; ++j) sum += routed[c.plan.row[choice] * 5 + j] * x[choice / k * 5 + j];
    }
    return sum;
  };
  expect_gradient(gather, dy, to_doubles(out.dx), 1e-5);
}

TYPED_TEST(PermutationTest, OutputsMayOverwriteInputs) {
  using T = TypeParam;
  Case<T> c(37);
  auto const expected = c.stated();
  auto const row = c.plan.rows_view(), order = c.plan.order_view();
  std::int64_t const n = c.plan.rows, k = c.plan.top_k;
  Matrix<float> const weight(c.weight.data(), n, k);
  auto residual = c.residual, shared = c.shared, routed = c.routed;
  Matrix<T> const res(residual.data(), n, 37), sh(shared.data(), n, 37), rt(routed.data(), n * k, 37),
      x(c.x.data(), n, 37);
  permutation_combine<T>(Cpu(1), sh, res, sh, rt, weight, row, order);
  EXPECT_TRUE(same_bits(shared, expected.y));
  shared = c.shared;
  permutation_combine<T>(Cpu(1), res, res, Matrix<T>(shared.data(), n, 37), rt, weight, row, order);
  EXPECT_TRUE(same_bits(residual, expected.y));
  std::vector<float> dweight(n * k);
  permutation_combine_backward<T>(Cpu(1), rt, Matrix<float>(dweight.data(), n, k), x, rt, weight, row);
  EXPECT_TRUE(same_bits(routed, expected.drouted));
  EXPECT_TRUE(same_bits(dweight, expected.dweight));
}

TYPED_TEST(PermutationTest, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  Case<T> c(4);
  auto const row = c.plan.rows_view(), order = c.plan.order_view();
  Matrix<T> const x(c.x.data(), 12, 4), routed(c.routed.data(), 36, 4), narrow(c.routed.data(), 36, 3);
  Matrix<float> const weight(c.weight.data(), 12, 3), short_weight(c.weight.data(), 11, 3);
  EXPECT_NO_THROW(permutation_gather<T>(Cpu(1), routed, x, row));
  EXPECT_THROW(permutation_gather<T>(Cpu(1), narrow, x, row), std::logic_error);
  EXPECT_THROW(permutation_gather<T>(Cpu(1), routed.slice_rows(0, 35), x, row), std::logic_error);
  EXPECT_THROW(permutation_gather_backward<T>(Cpu(1), x, routed, row, order.slice_rows(0, 3), Accumulate::no),
               std::logic_error);
  EXPECT_THROW(permutation_combine<T>(Cpu(1), x, x, narrow, routed, weight, row, order), std::logic_error);
  EXPECT_THROW(permutation_combine<T>(Cpu(1), x, x, x, routed, short_weight, row, order), std::logic_error);
  EXPECT_THROW(permutation_combine_backward<T>(Cpu(1), routed, short_weight, x, routed, weight, row), std::logic_error);
}

}  // namespace
}  // namespace isotrain::kernels::test
