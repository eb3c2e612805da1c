#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/comm/communicator.h"
#include "lib/device/buffers.h"
#include "lib/device/cpu.h"
#include "lib/tensor/parameters.h"

namespace isotrain {

/// What the optimizer keeps of this rank's runs of the flat space, one after the other without gaps ("own elements").
/// Owns nothing.
struct OptimizerState {
  std::span<float> weight;  // (own elements) master weights
  std::span<float> m;       // (own elements) first moment
  std::span<float> v;       // (own elements) second moment
};

/// The names under which that state is planned.
struct OptimizerBuffers {
  BufferId<float> weight;
  BufferId<float> m;
  BufferId<float> v;

  static OptimizerBuffers plan(BufferPlan& plan, std::vector<FlatRange> const& own);
  OptimizerState state(Buffers const& buffers) const { return {buffers[weight], buffers[m], buffers[v]}; }
};

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101) on this rank's part of the flat space: any runs of whole blocks,
/// ascending and disjoint (ZeRO-1, arXiv:1910.02054). The same bits however the blocks are shared out among ranks.
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

  /// Throws UsageError naming the setting that is out of range.
  AdamW(Settings const& settings, ParameterTable const& table, std::vector<FlatRange> const& own);

  /// One update. Collective over ranks of which every block of the flat space has one owner (all ranks of a run).
  ///
  ///   step        1-based; corrects the moments' bias (kernels/adamw.h)
  ///   gradient    (own elements) fp32, reduced and normalised
  ///
  /// The gradient norm is the square root of the exact sum (lib/base/exact_sum.h), rounded once, of fp64 sums of
  /// squares, one for each block of the flat space: every parameter counts once. clip_scale = min(1, clip / norm),
  /// rounded once to fp32.
  StepResult step(Cpu const& at, Communicator const& ranks, std::int64_t step, double learning_rate,
                  OptimizerState const& state, std::span<float const> gradient);

 private:
  /// Neighbours among the own elements that decay or do not.
  struct Part {
    std::size_t begin = 0;
    std::size_t size = 0;
    bool decay = false;
  };

  double gradient_norm(Cpu const& at, Communicator const& ranks, std::span<float const> gradient) const;

  Settings settings_;
  std::int64_t num_blocks_ = 0;  // of the whole flat space
  std::size_t size_ = 0;         // own elements
  std::vector<Part> parts_;      // cover them, ascending
};

/// Where a gradient holds a NaN or infinity.
struct NonFinite {
  std::string parameter;
  std::int64_t element = 0;  // of that parameter
};

/// The first such element of the last parameter, in canonical order, that has one: the backward pass carries what goes
/// wrong in a layer to all layers before it. `gradient` holds the own runs' elements, as AdamW::step takes it. The same
/// on every rank; none if all gradients are finite. Collective.
std::optional<NonFinite> find_non_finite(Cpu const& at, Communicator const& ranks, ParameterTable const& table,
                                         std::vector<FlatRange> const& own, std::span<float const> gradient);

}  // namespace isotrain
