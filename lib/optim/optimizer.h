#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/bfloat16.h"
#include "lib/comm/communicator.h"
#include "lib/device/buffers.h"
#include "lib/device/cpu.h"
#include "lib/tensor/parameters.h"

namespace isotrain {

/// What the optimizer keeps of this rank's range [begin, end) of the flat space. Owns nothing. Sizes in elements.
struct OptimizerState {
  std::span<float> weight;  // (range) master weights
  std::span<float> m;       // (range) first moment
  std::span<float> v;       // (range) second moment
};

/// The names under which that state is planned.
struct OptimizerBuffers {
  BufferId<float> weight;
  BufferId<float> m;
  BufferId<float> v;
  BufferId<double> block_sums;  // (blocks of the whole flat space)

  static OptimizerBuffers plan(BufferPlan& plan, ParameterTable const& table, FlatRange range);
  OptimizerState state(Buffers const& buffers) const { return {buffers[weight], buffers[m], buffers[v]}; }
};

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101) on this rank's part of the flat space: each rank of the
/// data-parallel group updates the whole blocks that flat_range gives it (ZeRO-1, arXiv:1910.02054). The same bits on
/// any number of ranks.
class AdamW {
 public:
  struct Settings {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;  // of parameters that decay
    double clip = 1.0;          // largest gradient norm; 0: no clipping
  };

  struct StepResult {
    double gradient_norm = 0;  // before clipping, of all parameters; not finite: nothing was changed
    float clip_scale = 1;      // what the gradient was multiplied by
    bool finite() const;
  };

  /// `block_sums` has one element per block of the flat space. Throws UsageError naming the setting that is out of
  /// range.
  AdamW(Settings const& settings, ParameterTable const& table, FlatRange range, std::span<double> block_sums);

  /// One update; every rank of `dp` calls it, rank r with the range flat_range(table, dp.size(), r).
  ///
  ///   step        1-based; corrects the moments' bias (kernels/adamw.h)
  ///   gradient    (range) fp32, reduced and normalised
  ///   compute     out: the rounded weights of the range's part of the matrix segment; empty: none (an fp32 model)
  ///
  /// The gradient norm is the square root of fp64 sums of squares, one for each block of the flat space, added in
  /// ascending order on every rank: every parameter counts once. clip_scale = min(1, clip / norm), rounded once to
  /// fp32.
  StepResult step(Cpu const& at, Communicator const& dp, std::int64_t step, double learning_rate,
                  OptimizerState const& state, std::span<float const> gradient, std::span<bfloat16> compute);

  /// Gradient norm of each parameter in the last step, in canonical order, before clipping.
  std::vector<double> parameter_norms() const;

 private:
  struct Run {
    std::int64_t begin = 0;  // in the range
    std::int64_t end = 0;
    bool decay = false;
    bool matrix = false;
  };

  std::int64_t matrix_elements() const;

  Settings settings_;
  ParameterTable const& table_;
  FlatRange range_;
  std::span<double> block_sums_;
  std::vector<Run> runs_;  // cover the range, ascending
};

/// Where a gradient holds a NaN or infinity.
struct NonFinite {
  std::string parameter;
  std::int64_t element = 0;  // of that parameter
};

/// The first such element of the last parameter, in canonical order, that has one: the backward pass carries what goes
/// wrong in a layer to all layers before it. The same on every rank of `dp`; none if all gradients are finite.
/// Collective.
std::optional<NonFinite> find_non_finite(Cpu const& at, Communicator const& dp, ParameterTable const& table,
                                         FlatRange range, std::span<float const> gradient);

}  // namespace isotrain
