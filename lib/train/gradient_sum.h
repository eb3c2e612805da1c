#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/comm/lane_sum.h"
#include "lib/comm/tree_sum_run.h"
#include "lib/device/buffers.h"
#include "lib/model/gradients.h"
#include "lib/train/chunk_reductions.h"

namespace isotrain {

/// The names of the memory of a GradientSum.
struct GradientBuffers {
  std::vector<BufferId<float>> sliced;                // region `sliced`
  std::vector<BufferId<float>> tied;                  // the embedding's input side
  std::vector<std::vector<BufferId<float>>> experts;  // region `experts`, for each source
  std::vector<BufferId<float>> token_slices;          // regions `replicated` and `fp32`
  std::array<std::vector<BufferId<float>>, 2> parts;  // this tensor rank's part of each, for lanes

  static GradientBuffers plan(BufferPlan& plan, std::string const& name, Shard const& shard, ModelConfig const& config,
                              ModelPart const& part, LanePlan const& lanes);
};

/// The gradients of a chunk on their way from micro-batches to the sum over all lanes: Tree(lanes) of each lane's
/// gradient, which for replicated parameters is a Tree over token slices. Lanes come in turns, in each the next lane of
/// every source.
class GradientSum {
 public:
  GradientSum(Shard const& shard, ModelPart const& part, std::vector<Domain> const& domains, LanePlan const& lanes,
              ChunkReductions reductions, GradientBuffers const& names, Buffers const& buffers);

  void begin_turn(Cpu const& at);
  /// Where the micro-batches of the turn add their gradients.
  Gradients where() const { return {sliced_now_, experts_now_, tied_now_, token_slices_}; }
  /// Collective over the tensor group.
  void end_turn(Cpu const& at, std::span<float> workspace);

  /// After the last turn. Collective over the domain's reducers. Starts to add up what all ranks have of it; this
  /// rank's own part to `sum`.
  void start(TreeReductionQueue& queue, Cpu const& at, std::size_t domain, std::span<float> sum);
  /// The same of a tied embedding's input side, shared out like domain `tied`.
  void start_tied(TreeReductionQueue& queue, Cpu const& at, std::span<float> sum);
  bool has_tied() const { return tied_.has_value(); }
  /// Makes ready for the next step, when all that was started has ended.
  void reset();

 private:
  std::vector<std::span<float>> merged_experts(Cpu const& at) const;

  std::vector<Domain> const& domains_;
  LanePlan const& lanes_;
  ChunkReductions reductions_;
  int slices_;
  int first_slice_;
  std::int64_t turn_ = -1;
  std::int64_t sliced_begin_;
  std::array<FlatRange, 2> replicated_;
  std::vector<std::span<float>> token_slices_;
  std::vector<std::vector<std::span<float>>> expert_buffers_;
  LaneSum sliced_;
  std::optional<LaneSum> tied_;
  std::vector<LaneSum> experts_;
  std::vector<LaneSum> parts_;
  std::span<float> sliced_now_, tied_now_;
  std::vector<std::span<float>> experts_now_;
};

}  // namespace isotrain
