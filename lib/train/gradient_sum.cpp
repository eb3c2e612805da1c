#include "lib/train/gradient_sum.h"

#include "kernels/reduce.h"

namespace isotrain {
namespace {

using Spans = std::vector<std::span<float>>;

Spans spans(std::vector<BufferId<float>> const& names, Buffers const& buffers) {
  Spans result;
  for (auto const name : names) result.push_back(buffers[name]);
  return result;
}

/// Elements [range) of each, counted from `origin`.
Spans parts_of(Spans const& whole, FlatRange range, std::int64_t origin) {
  Spans result;
  for (auto const& span : whole) {
    result.push_back(
        span.subspan(static_cast<std::size_t>(range.begin - origin), static_cast<std::size_t>(range.size())));
  }
  return result;
}

/// Adds up `sums`, one for each of `nodes`, as far as Tree(num_leaves) lets: what remains, ascending.
Spans add_up(Cpu const& at, Spans const& sums, std::vector<TreeNode> const& nodes, std::int64_t num_leaves) {
  TreeCounter counter(num_leaves);
  for (auto const& node : nodes) {
    for (auto const& due : counter.push(node)) {
      kernels::add(at, sums[static_cast<std::size_t>(due.left)], sums[static_cast<std::size_t>(due.right)]);
    }
  }
  Spans remaining;
  for (auto const& sum : counter.sums()) remaining.push_back(sums[static_cast<std::size_t>(sum.number)]);
  return remaining;
}

}  // namespace

GradientBuffers GradientBuffers::plan(BufferPlan& plan, std::string const& name, Shard const& shard,
                                      ModelConfig const& config, ModelPart const& part, LanePlan const& lanes) {
  auto const add = [&](std::string const& what, std::int64_t count, std::int64_t size) {
    std::vector<BufferId<float>> list;
    for (std::int64_t i = 0; i < count; ++i) {
      list.push_back(plan.add<float>("gradients", name + what + ", partial sum " + std::to_string(i), size));
    }
    return list;
  };
  GradientBuffers buffers;
  std::int64_t const own = LaneSum::num_buffers(lanes.own(), lanes.num_lanes);
  buffers.sliced = add("sliced matrices", own, shard.region(Region::sliced).size());
  if (config.tied_embeddings && part.has_embedding()) {
    buffers.tied = add("embedding, input side", own, embedding_range(shard).size());
  }
  for (int s = 0; s < lanes.sources; ++s) {
    buffers.experts.push_back(add("experts of source " + std::to_string(s),
                                  LaneSum::num_buffers(lanes.of_source(s), lanes.num_lanes),
                                  shard.region(Region::experts).size()));
  }
  auto const replicated = replicated_regions(shard);
  int const tensor = part.tensor_ranks();
  buffers.token_slices = add("replicated parameters, token slices", shard.table().slices() / tensor, replicated[1].end);
  for (std::size_t i = 0; i < replicated.size(); ++i) {
    buffers.parts[i] = add(i == 0 ? "replicated matrices" : "fp32 parameters", own,
                           share_of(replicated[i], tensor, part.tensor_rank()).size());
  }
  return buffers;
}

GradientSum::GradientSum(Shard const& shard, ModelPart const& part, std::vector<Domain> const& domains,
                         LanePlan const& lanes, ChunkReductions reductions, GradientBuffers const& names,
                         Buffers const& buffers)
    : domains_(domains),
      lanes_(lanes),
      reductions_(std::move(reductions)),
      slices_(shard.table().slices()),
      first_slice_(slices_ / part.tensor_ranks() * part.tensor_rank()),
      sliced_begin_(shard.region(Region::sliced).begin),
      replicated_(replicated_regions(shard)),
      token_slices_(spans(names.token_slices, buffers)),
      sliced_(lanes.own(), lanes.num_lanes, spans(names.sliced, buffers)) {
  if (reductions_.tied) tied_.emplace(lanes.own(), lanes.num_lanes, spans(names.tied, buffers));
  for (int s = 0; s < lanes.sources; ++s) {
    expert_buffers_.push_back(spans(names.experts[static_cast<std::size_t>(s)], buffers));
    experts_.emplace_back(lanes.of_source(s), lanes.num_lanes, expert_buffers_.back());
  }
  for (auto const& part_names : names.parts) {
    parts_.emplace_back(lanes.own(), lanes.num_lanes, spans(part_names, buffers));
  }
}

void GradientSum::begin_turn(Cpu const& at) {
  turn_ += 1;
  sliced_now_ = tied_now_ = {};
  if (turn_ < lanes_.own().size()) {
    sliced_now_ = sliced_.next();
    kernels::fill_zero(at, sliced_now_);
    if (tied_) {
      tied_now_ = tied_->next();
      kernels::fill_zero(at, tied_now_);
    }
    for (auto const& slice : token_slices_) kernels::fill_zero(at, slice);
  }
  experts_now_.clear();
  for (std::size_t s = 0; s < experts_.size(); ++s) {
    bool const comes = turn_ < lanes_.of_source(static_cast<int>(s)).size();
    // A source without a lane sends no rows: nothing is added to its buffer.
    experts_now_.push_back(comes ? experts_[s].next() : expert_buffers_[s].front());
    if (comes) kernels::fill_zero(at, experts_now_.back());
  }
}

void GradientSum::end_turn(Cpu const& at, std::span<float> workspace) {
  for (std::size_t s = 0; s < experts_.size(); ++s) {
    if (turn_ < lanes_.of_source(static_cast<int>(s)).size()) experts_[s].push(at);
  }
  if (turn_ >= lanes_.own().size()) return;
  sliced_.push(at);
  if (tied_) tied_->push(at);

  std::vector<TreeNode> leaves;
  for (std::size_t s = 0; s < token_slices_.size(); ++s) {
    leaves.push_back({0, first_slice_ + static_cast<std::int64_t>(s)});
  }
  auto const sums = add_up(at, token_slices_, leaves, slices_);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    reductions_.over_tensor[i].reduce_scatter(at, parts_of(sums, replicated_[i], 0), parts_[i].next(), workspace);
    parts_[i].push(at);
  }
}

/// One sum for each subtree of the lanes of all sources together.
std::vector<std::span<float>> GradientSum::merged_experts(Cpu const& at) const {
  Spans all;
  std::vector<TreeNode> nodes;
  for (std::size_t s = 0; s < experts_.size(); ++s) {
    auto const partials = experts_[s].partials();
    all.insert(all.end(), partials.begin(), partials.end());
    auto const covered = subtrees(lanes_.of_source(static_cast<int>(s)), lanes_.num_lanes);
    nodes.insert(nodes.end(), covered.begin(), covered.end());
  }
  return add_up(at, all, nodes, lanes_.num_lanes);
}

void GradientSum::start(TreeReductionQueue& queue, Cpu const& at, std::size_t index, std::span<float> sum) {
  Domain const& domain = domains_[index];
  Spans partials;
  switch (domain.kind) {
    case Domain::Kind::tied:
    case Domain::Kind::sliced:
      partials = parts_of(sliced_.partials(), domain.part, sliced_begin_);
      break;
    case Domain::Kind::experts:
      partials = merged_experts(at);
      break;
    case Domain::Kind::replicated:
      partials = parts_[0].partials();
      break;
    case Domain::Kind::fp32:
      partials = parts_[1].partials();
      break;
  }
  queue.start(reductions_.over_data[index], at, std::move(partials), sum);
}

void GradientSum::start_tied(TreeReductionQueue& queue, Cpu const& at, std::span<float> sum) {
  queue.start(*reductions_.tied, at, tied_->partials(), sum);
}

void GradientSum::reset() {
  turn_ = -1;
  sliced_.reset();
  if (tied_) tied_->reset();
  for (auto& experts : experts_) experts.reset();
  for (auto& part : parts_) part.reset();
}

}  // namespace isotrain
