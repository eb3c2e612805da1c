#include "lib/train/weights.h"

#include <algorithm>

#include "kernels/reduce.h"

namespace isotrain {
namespace {

/// `weights` begin at `origin` of the shard.
template <class U>
void publish_domain(Cpu const& at, Domain const& domain, std::span<float const> master, std::span<U> weights,
                    std::int64_t origin) {
  auto const whole = weights.subspan(static_cast<std::size_t>(domain.local.begin - origin),
                                     static_cast<std::size_t>(domain.local.size()));
  auto const own = whole.subspan(static_cast<std::size_t>(domain.own.begin - domain.local.begin), master.size());
  kernels::convert(at, own, master);
  domain.holders->all_gather(std::span<U const>(own), whole, std::span<std::int64_t const>(domain.held));
}

template <class U>
void move_between_stages(RankPlan const& rank, TiedChunks const& tied, bool to_input, std::span<U> from,
                         std::span<U> to) {
  int const source = to_input ? tied.output : tied.input;
  int const target = to_input ? tied.input : tied.output;
  if (source >= 0 && target >= 0) {
    std::ranges::copy(from, to.begin());
    return;
  }
  Messages messages(rank.mesh().pipeline());
  if (source >= 0) messages.send(std::span<U const>(from), to_input ? tied.input_stage : tied.output_stage);
  if (target >= 0) messages.receive(to, to_input ? tied.output_stage : tied.input_stage);
  messages.wait();
}

}  // namespace

TiedChunks::TiedChunks(RankPlan const& rank) {
  auto const spec = rank.schedule(rank.train().model.micro_batch);
  input_stage = stage_of_chunk(spec, 0);
  output_stage = stage_of_chunk(spec, rank.num_chunks() - 1);
  input = rank.local_chunk(0);
  output = rank.local_chunk(rank.num_chunks() - 1);
}

template <class T>
void publish_weights(RankPlan const& rank, TrainMemory<T> const& memory, Cpu const& at) {
  std::span<float const> const master = memory.optimizer_state().weight;
  for (std::size_t c = 0; c < rank.chunks().size(); ++c) {
    auto const& chunk = rank.chunks()[c];
    auto const& names = memory.layout().chunks[c];
    for (std::size_t d = 0; d < chunk.domains.size(); ++d) {
      auto const& domain = chunk.domains[d];
      auto const own = rank.part_of(master, c, d);
      if (domain.kind == Domain::Kind::fp32) {
        publish_domain(at, domain, own, memory[names.fp32], chunk.shard.matrix_size());
      } else {
        publish_domain(at, domain, own, memory[names.matrices], 0);
      }
    }
  }
  TiedChunks const tied(rank);
  if (!rank.train().config.tied_embeddings || rank.num_chunks() == 1 || (tied.input < 0 && tied.output < 0)) return;
  auto const embedding = [&](int chunk) {
    if (chunk < 0) return std::span<T>();
    auto const index = static_cast<std::size_t>(chunk);
    FlatRange const range = embedding_range(rank.chunks()[index].shard);
    return memory[memory.layout().chunks[index].matrices].subspan(static_cast<std::size_t>(range.begin),
                                                                  static_cast<std::size_t>(range.size()));
  };
  move_between_stages<T>(rank, tied, true, embedding(tied.output), embedding(tied.input));
}

void meet_tied_gradients(RankPlan const& rank, Cpu const& at, std::span<float> input_side,
                         std::span<float> output_side) {
  TiedChunks const tied(rank);
  if (tied.input < 0 && tied.output < 0) return;
  if (tied.input < 0 || tied.output < 0) move_between_stages<float>(rank, tied, false, input_side, input_side);
  if (tied.output >= 0) kernels::add(at, output_side, std::span<float const>(input_side));
}

std::uint64_t hash_weights(RankPlan const& rank, Cpu const& at, std::span<float const> own) {
  std::uint64_t hash = 0;
  std::size_t begin = 0;
  for (FlatRange const& run : rank.own()) {
    auto const part = own.subspan(begin, static_cast<std::size_t>(run.size()));
    hash += kernels::hash(at, part, static_cast<std::uint64_t>(run.begin));
    begin += part.size();
  }
  return rank.mesh().world().sum(hash);
}

template void publish_weights(RankPlan const&, TrainMemory<float> const&, Cpu const&);
template void publish_weights(RankPlan const&, TrainMemory<bfloat16> const&, Cpu const&);

}  // namespace isotrain
