#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/router.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/top_k.h"
#include "kernels/router.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// p = exp(logit - maximum) / sum, the sum in 16 parts.
inline void softmax_row(float* score, float const* logits, std::int64_t count) {
  float maximum = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < count; ++i) maximum = std::max(maximum, logits[i]);
  F32x16 sum = splat(0);
  for_blocks(count, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    F32x16 const e = exponential(load_first(logits + i, n, -std::numeric_limits<float>::infinity()) - splat(maximum));
    sum = sum + e;
    store_first(e, score + i, n);
  });
  F32x16 const total = splat(tree_sum(sum));
  for_blocks(count, [&](std::int64_t i, std::int64_t n)
                        ISOTRAIN_INLINE_LAMBDA { store_first(load_first(score + i, n) / total, score + i, n); });
}

inline void score_rows(Matrix<float> score, Matrix<float const> logits, Scoring scoring, std::int64_t begin,
                       std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    float* const out = score.row(row);
    float const* const in = logits.row(row);
    if (scoring == Scoring::softmax) {
      softmax_row(out, in, score.cols);
    } else {
      for_blocks(score.cols, [&](std::int64_t i, std::int64_t n)
                                 ISOTRAIN_INLINE_LAMBDA { store_first(sigmoid(load_first(in + i, n)), out + i, n); });
    }
  }
}

/// From the gradient of the scores, in dlogits, to that of the logits, in place.
inline void score_backward_rows(Matrix<float> dlogits, Matrix<float const> score, Scoring scoring, std::int64_t begin,
                                std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    float* const d = dlogits.row(row);
    float const* const s = score.row(row);
    F32x16 products = splat(0);
    if (scoring == Scoring::softmax) {
      for_blocks(score.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
        products = fused(load_first(s + i, n), load_first(d + i, n), products);
      });
    }
    F32x16 const mean = splat(scoring == Scoring::softmax ? tree_sum(products) : 0);
    for_blocks(score.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      F32x16 const p = load_first(s + i, n);
      F32x16 const ds = load_first(d + i, n);
      store_first(scoring == Scoring::softmax ? p * (ds - mean) : ds * p * (splat(1) - p), d + i, n);
    });
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

constexpr float tiny = 1e-20F;  // keeps the normalisation finite, as in the published code

bool normalizes(RouterShape const& shape) {
  return shape.normalize_top_k && (shape.method == TopkMethod::noaux_tc || shape.top_k > 1);
}
/// V3 always scales; V2 scales where it does not normalise.
float scaling_of(RouterShape const& shape) {
  return shape.method != TopkMethod::noaux_tc && normalizes(shape) ? 1.0F : shape.scaling;
}

void check(RouterShape const& shape) {
  expects(shape.experts >= 1 && shape.top_k >= 1 && shape.top_k <= shape.experts, "1 <= top_k <= experts");
  expects(shape.num_groups >= 1 && shape.experts % shape.num_groups == 0, "groups of equally many experts");
  expects(shape.top_groups >= 1 && shape.top_groups <= shape.num_groups, "1 <= top_groups <= num_groups");
  expects(shape.method == TopkMethod::greedy || shape.top_k <= shape.experts / shape.num_groups * shape.top_groups,
          "enough experts in the groups that a token may use");
}

template <class T>
void check(Matrix<T> m, std::int64_t rows, int cols) {
  expects(m.rows == rows && m.cols == cols && m.col_stride == 1,
          "router matrices of N rows, E or K columns, contiguous");
}

/// Maximum of a group (V2) or sum of its two largest (V3).
float group_score(float const* score, int count, TopkMethod method) {
  float first = score[0];
  float second = -std::numeric_limits<float>::infinity();
  for (int i = 1; i < count; ++i) {
    second = std::max(second, std::min(first, score[i]));
    first = std::max(first, score[i]);
  }
  return method == TopkMethod::noaux_tc && count > 1 ? first + second : first;
}

/// Chooses the experts of one token by `choice` (E). `group_scores` and `groups` have room for num_groups each.
void choose(std::int32_t* expert, float const* choice, RouterShape const& shape, float* group_scores,
            std::int32_t* groups) {
  if (shape.method == TopkMethod::greedy || shape.top_groups == shape.num_groups) {
    top_k(expert, shape.top_k, choice, shape.experts, [](int) { return true; });
    return;
  }
  int const size = shape.experts / shape.num_groups;
  for (int g = 0; g < shape.num_groups; ++g) group_scores[g] = group_score(choice + g * size, size, shape.method);
  top_k(groups, shape.top_groups, group_scores, shape.num_groups, [](int) { return true; });
  for (int g = 0; g < shape.num_groups; ++g) group_scores[g] = 0;
  for (int i = 0; i < shape.top_groups; ++i) group_scores[groups[i]] = 1;
  top_k(expert, shape.top_k, choice, shape.experts, [&](int id) { return group_scores[id / size] == 1; });
}

/// Gate values of one token.
void weigh(float* weight, float const* score, std::int32_t const* expert, RouterShape const& shape) {
  float const factor = scaling_of(shape);
  float sum = 0;
  for (int k = 0; k < shape.top_k; ++k) sum = sum + score[expert[k]];
  for (int k = 0; k < shape.top_k; ++k) {
    float const s = score[expert[k]];
    weight[k] = (normalizes(shape) ? s / (sum + tiny) : s) * factor;
  }
}

/// Gradient of the scores of one token, other experts' left as they are: added to dscore (E).
void add_weight_gradient(float* dscore, float const* dweight, float const* weight, float const* score,
                         std::int32_t const* expert, RouterShape const& shape) {
  float const factor = scaling_of(shape);
  float sum = 0;
  float along = 0;  // sum of dweight * weight
  for (int k = 0; k < shape.top_k; ++k) {
    sum = sum + score[expert[k]];
    along = along + dweight[k] * weight[k];
  }
  for (int k = 0; k < shape.top_k; ++k) {
    float const d = factor * dweight[k];
    dscore[expert[k]] = dscore[expert[k]] + (normalizes(shape) ? (d - along) / (sum + tiny) : d);
  }
}

}  // namespace

void router_forward(Cpu const& at, Matrix<float> score, Matrix<std::int32_t> expert, Matrix<float> weight,
                    Matrix<float const> logits, std::span<float const> bias, RouterShape shape) {
  check(shape);
  check(score, logits.rows, shape.experts);
  check(logits, logits.rows, shape.experts);
  check(expert, logits.rows, shape.top_k);
  check(weight, logits.rows, shape.top_k);
  expects(bias.empty() || bias.size() == static_cast<std::size_t>(shape.experts), "one bias for each expert");
  at.parallel_for(logits.rows, rows_per_piece(64 * shape.experts), [&](std::int64_t begin, std::int64_t end) {
    static thread_local Scratch scratch;
    float *choice, *group_scores, *groups;
    scratch.cut({{&choice, shape.experts}, {&group_scores, shape.num_groups}, {&groups, shape.num_groups}});
    ISOTRAIN_DISPATCH(score_rows)(score, logits, shape.scoring, begin, end);
    for (std::int64_t row = begin; row < end; ++row) {
      for (int e = 0; e < shape.experts; ++e) choice[e] = bias.empty() ? score(row, e) : score(row, e) + bias[e];
      choose(expert.row(row), choice, shape, group_scores, reinterpret_cast<std::int32_t*>(groups));
      weigh(weight.row(row), score.row(row), expert.row(row), shape);
    }
  });
}

void router_backward(Cpu const& at, Matrix<float> dlogits, Matrix<float const> dweight,
                     Matrix<float const> dscore_extra, Matrix<float const> score, Matrix<std::int32_t const> expert,
                     Matrix<float const> weight, RouterShape shape) {
  check(shape);
  check(dlogits, score.rows, shape.experts);
  check(score, score.rows, shape.experts);
  check(dweight, score.rows, shape.top_k);
  check(expert, score.rows, shape.top_k);
  check(weight, score.rows, shape.top_k);
  if (!dscore_extra.empty()) check(dscore_extra, score.rows, shape.experts);
  at.parallel_for(score.rows, rows_per_piece(16 * shape.experts), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (dscore_extra.empty()) {
        std::fill_n(dlogits.row(row), shape.experts, 0.0F);
      } else {
        std::copy_n(dscore_extra.row(row), shape.experts, dlogits.row(row));
      }
      add_weight_gradient(dlogits.row(row), dweight.row(row), weight.row(row), score.row(row), expert.row(row), shape);
    }
    ISOTRAIN_DISPATCH(score_backward_rows)(dlogits, score, shape.scoring, begin, end);
  });
}

void router_count(std::span<std::int64_t> load, Matrix<std::int32_t const> expert) {
  for (std::int64_t row = 0; row < expert.rows; ++row) {
    for (std::int64_t k = 0; k < expert.cols; ++k) {
      std::int32_t const e = expert(row, k);
      expects(e >= 0 && e < static_cast<std::int64_t>(load.size()), "expert ids below the number of experts");
      ++load[static_cast<std::size_t>(e)];
    }
  }
}

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
