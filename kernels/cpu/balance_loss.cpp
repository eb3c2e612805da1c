#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/balance_loss.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/balance_loss.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/top_k.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

/// Sum of a token's scores, in 16 parts.
inline float score_sum(float const* score, std::int64_t experts) {
  F32x16 sum = splat(0);
  for_blocks(experts,
             [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA { sum = sum + load_first(score + i, n); });
  return tree_sum(sum);
}

/// sums[e] = sum over tokens of the score, or of the score's share where `normalize`.
inline void add_up_scores(float* sums, Matrix<float const> score, bool normalize) {
  std::fill_n(sums, score.cols, 0.0F);
  for (std::int64_t row = 0; row < score.rows; ++row) {
    F32x16 const total = splat(normalize ? score_sum(score.row(row), score.cols) : 1.0F);
    for_blocks(score.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      store_first(load_first(sums + i, n) + load_first(score.row(row) + i, n) / total, sums + i, n);
    });
  }
}

/// dscore = coefficient, or through the share s / sum(s): (coefficient - sum_j coefficient_j share_j) / sum(s).
inline void spread_gradient(Matrix<float> dscore, Matrix<float const> score, float const* coefficient, bool normalize) {
  for (std::int64_t row = 0; row < score.rows; ++row) {
    float mean = 0;
    float total = 1;
    if (normalize) {
      total = score_sum(score.row(row), score.cols);
      F32x16 products = splat(0);
      for_blocks(score.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
        products = fused(load_first(coefficient + i, n), load_first(score.row(row) + i, n) / splat(total), products);
      });
      mean = tree_sum(products);
    }
    for_blocks(score.cols, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
      store_first((load_first(coefficient + i, n) - splat(mean)) / splat(total), dscore.row(row) + i, n);
    });
  }
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {
namespace {

/// Working memory of one sample.
struct Work {
  float* score_sums;     // (E)
  float* coefficient;    // (E)
  std::int32_t* chosen;  // (K)
  std::int32_t* count;   // (E) tokens that count for an expert
  std::int32_t* sent;    // (D) tokens sent to a device
};

/// Tokens per expert: those that chose it or, for V3, in whose best K scores it is; bias and group limit play no part
/// there.
void count_experts(Work const& work, Matrix<float const> score, Matrix<std::int32_t const> expert,
                   RouterShape const& shape) {
  std::fill_n(work.count, shape.experts, 0);
  for (std::int64_t row = 0; row < score.rows; ++row) {
    std::int32_t const* chosen = expert.row(row);
    if (shape.scoring == Scoring::sigmoid) {
      top_k(work.chosen, shape.top_k, score.row(row), shape.experts, [](int) { return true; });
      chosen = work.chosen;
    }
    for (int k = 0; k < shape.top_k; ++k) ++work.count[chosen[k]];
  }
}

/// Tokens per device: those with at least one of its experts among their choices.
void count_devices(Work const& work, Matrix<std::int32_t const> expert, int experts_per_device, int devices) {
  std::fill_n(work.sent, devices, 0);
  for (std::int64_t row = 0; row < expert.rows; ++row) {
    for (std::int64_t k = 0; k < expert.cols; ++k) {
      auto const device_of = [&](std::int64_t choice) { return expert(row, choice) / experts_per_device; };
      bool first = true;
      for (std::int64_t earlier = 0; earlier < k; ++earlier) first = first && device_of(earlier) != device_of(k);
      if (first) ++work.sent[device_of(k)];
    }
  }
}

/// Returns the loss of one sample and leaves d loss / d P_e, times scale / T, in work.coefficient.
double loss_of_sample(Work const& work, RouterShape const& shape, BalanceLoss const& balance, std::int64_t tokens,
                      float scale) {
  auto const t = static_cast<double>(tokens);
  int const size = shape.experts / balance.device_groups;
  double const per_choice = static_cast<double>(shape.experts) / (static_cast<double>(shape.top_k) * t);
  double const per_device = static_cast<double>(balance.device_groups) / (static_cast<double>(balance.max_devices) * t);
  double loss = 0;
  for (int device = 0; device < balance.device_groups; ++device) {
    double device_f = 0;
    double device_p = 0;
    for (int e = device * size; e < (device + 1) * size; ++e) {
      double const f = per_choice * work.count[e];
      double const p = work.score_sums[e] / t;
      loss += balance.expert_alpha * f * p;
      device_f += f / size;
      device_p += p;
    }
    double const of_device = balance.device_alpha * device_f + balance.comm_alpha * per_device * work.sent[device];
    loss += of_device * device_p;
    for (int e = device * size; e < (device + 1) * size; ++e) {
      double const d = balance.expert_alpha * per_choice * work.count[e] + of_device;
      work.coefficient[e] = static_cast<float>(d * scale / t);
    }
  }
  return loss;
}

}  // namespace

void balance_loss(Cpu const& at, std::span<double> loss, Matrix<float> dscore, Matrix<float const> score,
                  Matrix<std::int32_t const> expert, RouterShape shape, BalanceLoss balance, std::int64_t sample_rows,
                  float scale) {
  auto const samples = static_cast<std::int64_t>(loss.size());
  expects(sample_rows >= 1 && score.rows == samples * sample_rows, "one loss for each sample");
  expects(score.cols == shape.experts && dscore.cols == shape.experts && dscore.rows == score.rows &&
              score.col_stride == 1 && dscore.col_stride == 1,
          "contiguous scores and gradients of N rows and E columns");
  expects(shape.top_k >= 1 && shape.top_k <= shape.experts && expert.rows == score.rows && expert.cols == shape.top_k &&
              expert.col_stride == 1,
          "contiguous choices of N rows and K columns");
  expects(balance.device_groups >= 1 && shape.experts % balance.device_groups == 0 && balance.max_devices >= 1,
          "devices of equally many experts");
  int const size = shape.experts / balance.device_groups;
  bool const normalize = shape.scoring == Scoring::sigmoid;
  at.parallel_for(samples, 1, [&](std::int64_t begin, std::int64_t end) {
    static thread_local Scratch scratch;
    Work work;
    float *chosen, *count, *sent;
    scratch.cut({{&work.score_sums, shape.experts},
                 {&work.coefficient, shape.experts},
                 {&chosen, shape.top_k},
                 {&count, shape.experts},
                 {&sent, balance.device_groups}});
    work.chosen = reinterpret_cast<std::int32_t*>(chosen);
    work.count = reinterpret_cast<std::int32_t*>(count);
    work.sent = reinterpret_cast<std::int32_t*>(sent);
    for (std::int64_t sample = begin; sample < end; ++sample) {
      auto const rows = score.slice_rows(sample * sample_rows, sample_rows);
      auto const choices = expert.slice_rows(sample * sample_rows, sample_rows);
      ISOTRAIN_DISPATCH(add_up_scores)(work.score_sums, rows, normalize);
      count_experts(work, rows, choices, shape);
      count_devices(work, choices, size, balance.device_groups);
      loss[sample] = loss_of_sample(work, shape, balance, sample_rows, scale);
      ISOTRAIN_DISPATCH(spread_gradient)
      (dscore.slice_rows(sample * sample_rows, sample_rows), rows, work.coefficient, normalize);
    }
  });
}

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
