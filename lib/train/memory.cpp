#include "lib/train/memory.h"

#include "lib/comm/agree.h"
#include "lib/comm/lane_sum.h"
#include "lib/parallel/lanes.h"

namespace isotrain {

std::vector<std::int64_t> flat_offsets(ParameterTable const& table, int ranks) {
  std::vector<std::int64_t> offsets;
  for (int r = 0; r < ranks; ++r) offsets.push_back(flat_range(table, ranks, r).begin);
  offsets.push_back(table.flat_size());
  return offsets;
}

template <class T>
TrainLayout<T> TrainLayout<T>::plan(TrainPlan const& plan, ParameterTable const& table, Communicator const& comm,
                                    BufferPlan& buffers) {
  auto const& s = plan.settings;
  std::int64_t const num_lanes = s.repro.lanes;
  auto const lanes = lanes_of_ranks(num_lanes, comm.size());
  IndexRange const own = lanes[static_cast<std::size_t>(comm.rank())];
  FlatRange const range = flat_range(table, comm.size(), comm.rank());

  TrainLayout layout;
  layout.matrices = buffers.add<T>("weights", "matrices", table.matrix_size());
  layout.fp32 = buffers.add<float>("weights", "fp32 weights", table.flat_size() - table.matrix_size());
  layout.optimizer = OptimizerBuffers::plan(buffers, {range});
  for (std::int64_t i = 0; i < LaneSum::num_buffers(own, num_lanes); ++i) {
    layout.lane_gradients.push_back(
        buffers.add<float>("gradients", "partial sum " + std::to_string(i) + " over lanes", table.flat_size()));
  }
  layout.gradient = buffers.add<float>("gradients", "gradient", range.size());
  TreeReduction const reduction(comm, num_lanes, lanes, flat_offsets(table, comm.size()));
  layout.reduction = buffers.add<float>("communication", "gradient pieces", reduction.workspace_size());
  layout.model = Model<Cpu, T>::plan(plan.config, plan.model, buffers);
  std::int64_t const rows = own.size() * (s.train.global_batch / num_lanes) * s.train.sequence;
  layout.tokens = buffers.add<std::int32_t>("data", "tokens", rows);
  layout.targets = buffers.add<std::int32_t>("data", "targets", rows);
  return layout;
}

template <class T>
TrainMemory<T>::TrainMemory(TrainPlan const& plan, ParameterTable const& table, Communicator const& comm)
    : layout_(TrainLayout<T>::plan(plan, table, comm, plan_)),
      buffers_(run_collectively(comm, [&] { return Buffers(plan_); })) {}

template <class T>
Weights<T> TrainMemory<T>::weights(ParameterTable const& table) const {
  return {buffers_[layout_.matrices].data(), buffers_[layout_.fp32].data(), table.matrix_size()};
}

template <class T>
std::vector<std::span<float>> TrainMemory<T>::lane_gradients() const {
  std::vector<std::span<float>> result;
  for (auto const id : layout_.lane_gradients) result.push_back(buffers_[id]);
  return result;
}

template struct TrainLayout<float>;
template struct TrainLayout<bfloat16>;
template class TrainMemory<float>;
template class TrainMemory<bfloat16>;

}  // namespace isotrain
