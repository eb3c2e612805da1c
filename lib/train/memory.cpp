#include "lib/train/memory.h"

#include <algorithm>

#include "lib/comm/agree.h"

namespace isotrain {

template <class T>
TrainLayout<T> TrainLayout<T>::plan(RankPlan const& rank, BufferPlan& buffers) {
  auto const& train = rank.train();
  auto const& s = train.settings;

  TrainLayout layout;
  std::int64_t tied = 0, tensor_pieces = 0, lane_pieces = 0;
  bool reads = false;
  for (auto const& chunk : rank.chunks()) {
    std::string const name = rank.num_chunks() == 1 ? "" : "chunk " + std::to_string(chunk.number) + ": ";
    Chunk made;
    made.matrices = buffers.add<T>("weights", name + "matrices", chunk.shard.matrix_size());
    made.fp32 =
        buffers.add<float>("weights", name + "fp32 weights", chunk.shard.flat_size() - chunk.shard.matrix_size());
    made.gradients = GradientBuffers::plan(buffers, name, chunk.shard, train.config, chunk.part, rank.lanes());
    auto const* const beside = layout.chunks.empty() ? nullptr : &layout.chunks.front().model;
    made.model = Model<Cpu, T>::plan(train.config, chunk.options, chunk.part, buffers, beside);
    layout.chunks.push_back(std::move(made));
    reads = reads || chunk.part.has_embedding() || chunk.part.has_head(train.config);
    ChunkReductions const reductions(chunk.shard, train.config, chunk.part, chunk.domains, rank.lanes(), rank.mesh());
    tensor_pieces = std::max(tensor_pieces, reductions.tensor_workspace_size());
    lane_pieces = std::max(lane_pieces, reductions.data_workspace_size());
    if (auto const share = rank.tied_share(chunk)) tied = share->size();
  }
  layout.optimizer = OptimizerBuffers::plan(buffers, rank.own());
  layout.gradient = buffers.add<float>("gradients", "gradient", rank.own_size());
  layout.tied = buffers.add<float>("gradients", "share of the embedding's input side", tied);
  layout.tensor_pieces = buffers.add<float>("communication", "gradient pieces of tensor ranks", tensor_pieces);
  layout.lane_pieces = buffers.add<float>("communication", "gradient pieces of data ranks", lane_pieces);
  std::int64_t const rows =
      reads ? rank.lanes().own().size() * (s.train.global_batch / s.repro.lanes) * s.train.sequence : 0;
  layout.tokens = buffers.add<std::int32_t>("data", "tokens", rows);
  layout.targets = buffers.add<std::int32_t>("data", "targets", rows);
  return layout;
}

template <class T>
TrainMemory<T>::TrainMemory(RankPlan const& rank)
    : layout_(TrainLayout<T>::plan(rank, plan_)),
      buffers_(run_collectively(rank.mesh().world(), [&] { return Buffers(plan_); })) {}

template <class T>
Weights<T> TrainMemory<T>::weights(std::size_t chunk) const {
  auto const& names = layout_.chunks[chunk];
  auto const matrices = buffers_[names.matrices];
  return {matrices.data(), buffers_[names.fp32].data(), static_cast<std::int64_t>(matrices.size())};
}

template struct TrainLayout<float>;
template struct TrainLayout<bfloat16>;
template class TrainMemory<float>;
template class TrainMemory<bfloat16>;

}  // namespace isotrain
