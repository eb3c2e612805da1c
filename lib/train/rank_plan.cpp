#include "lib/train/rank_plan.h"

#include <algorithm>
#include <tuple>

#include "lib/model/parameter_list.h"
#include "lib/parallel/schedule_slots.h"

namespace isotrain {
namespace {

bool has_late_weights(std::vector<ScheduleItem> const& items, int chunk) {
  return std::ranges::any_of(
      items, [&](ScheduleItem const& item) { return item.chunk == chunk && item.action == Action::backward_weight; });
}

}  // namespace

RankPlan::RankPlan(TrainPlan const& plan, Mesh const& mesh)
    : plan_(plan),
      mesh_(mesh),
      table_(model_parameters(plan.config), static_cast<int>(plan.settings.repro.slices)),
      lanes_(make_lane_plan(plan.settings.repro.lanes, mesh)) {
  auto const spec = schedule(plan.settings.train.global_batch / plan.settings.repro.lanes);
  int const stage = mesh.coordinates().pipeline;
  auto const items = make_schedule(spec, stage);
  for (int const number : chunks_of_stage(spec, stage)) {
    ModelPart const part{.tensor = mesh.tensor().size() > 1 ? &mesh.tensor() : nullptr,
                         .experts = mesh.expert().size() > 1 && plan.config.num_experts > 0 ? &mesh.expert() : nullptr,
                         .layers = plan.chunks[static_cast<std::size_t>(number)],
                         .slots = num_slots(items, number)};
    ModelOptions options = plan.model;
    options.deferred_weights = has_late_weights(items, number);
    Shard shard = shard_of(table_, plan.config, part);
    auto domains = make_domains(shard, plan.config, part, mesh);
    chunks_.push_back({number, part, options, std::move(shard), std::move(domains)});
  }

  // Own runs ascend in the flat space: by region, then by layer.
  std::vector<std::tuple<std::int64_t, std::size_t, std::size_t>> order;
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    auto const& chunk = chunks_[c];
    state_begin_.emplace_back(chunk.domains.size());
    for (std::size_t d = 0; d < chunk.domains.size(); ++d) {
      auto const runs = chunk.shard.global_runs(chunk.domains[d].own);
      if (!runs.empty()) order.emplace_back(runs.front().begin, c, d);
    }
  }
  std::ranges::sort(order);
  for (auto const& [begin, c, d] : order) {
    FlatRange const range = chunks_[c].domains[d].own;
    auto const runs = chunks_[c].shard.global_runs(range);
    expects(own_.empty() || own_.back().end <= runs.front().begin, "runs that ascend");
    state_begin_[c][d] = own_size_;
    own_.insert(own_.end(), runs.begin(), runs.end());
    own_size_ += range.size();
  }
}

int RankPlan::local_chunk(int number) const {
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    if (chunks_[c].number == number) return static_cast<int>(c);
  }
  return -1;
}

std::optional<FlatRange> RankPlan::tied_share(ChunkPlan const& chunk) const {
  auto const& config = plan_.config;
  if (!config.tied_embeddings || !(chunk.part.has_embedding() || chunk.part.has_head(config))) return std::nullopt;
  return share_of({0, embedding_range(chunk.shard).size()}, mesh_.data().size(), mesh_.data().rank());
}

ScheduleSpec RankPlan::schedule(std::int64_t lane_samples) const {
  return {.kind = plan_.schedule,
          .stages = plan_.degrees.pipeline,
          .virtual_stages = plan_.virtual_stages,
          .micro_batches = static_cast<int>(lanes_.turns() * (lane_samples / plan_.model.micro_batch))};
}

}  // namespace isotrain
