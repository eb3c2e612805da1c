#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include "kernels/adamw.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/rows-inl.h"
#include "lib/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace isotrain::kernels::HWY_NAMESPACE {

inline void adamw_range(float* weight, float* m, float* v, float const* gradient, bfloat16* compute, AdamwStep step,
                        std::int64_t begin, std::int64_t end) {
  F32x16 const beta1 = splat(step.beta1), rest1 = splat(1 - step.beta1);
  F32x16 const beta2 = splat(step.beta2), rest2 = splat(1 - step.beta2);
  F32x16 const scale = splat(step.gradient_scale), epsilon = splat(step.epsilon);
  F32x16 const correction1 = splat(step.correction1), correction2 = splat(step.correction2);
  F32x16 const minus_rate = splat(-step.learning_rate), minus_decay = splat(-step.decay);
  for_blocks(begin, end, [&](std::int64_t i, std::int64_t n) ISOTRAIN_INLINE_LAMBDA {
    F32x16 const g = load_first(gradient + i, n) * scale;
    F32x16 const new_m = fused(beta1, load_first(m + i, n), rest1 * g);
    F32x16 const new_v = fused(beta2, load_first(v + i, n), rest2 * (g * g));
    F32x16 const direction = (new_m * correction1) / (square_root(new_v * correction2) + epsilon);
    F32x16 const w = load_first(weight + i, n);
    F32x16 const new_w = fused(minus_rate, direction, fused(minus_decay, w, w));
    store_first(new_m, m + i, n);
    store_first(new_v, v + i, n);
    store_first(new_w, weight + i, n);
    if (compute) store_first(new_w, compute + i, n);
  });
}

}  // namespace isotrain::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isotrain::kernels {

void adamw(Cpu const& at, std::span<float> weight, std::span<float> m, std::span<float> v,
           std::span<float const> gradient, std::span<bfloat16> compute, AdamwStep step) {
  expects(m.size() == weight.size() && v.size() == weight.size() && gradient.size() == weight.size() &&
              (compute.empty() || compute.size() == weight.size()),
          "spans of one length");
  at.parallel_for(static_cast<std::int64_t>(weight.size()), elements_per_piece,
                  [&](std::int64_t begin, std::int64_t end) {
                    ISOTRAIN_DISPATCH(adamw_range)
                    (weight.data(), m.data(), v.data(), gradient.data(), compute.data(), step, begin, end);
                  });
}

}  // namespace isotrain::kernels
#endif  // HWY_ONCE
