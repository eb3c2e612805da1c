#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "lib/base/matrix.h"
#include "lib/comm/communicator.h"
#include "lib/parallel/schedule.h"

namespace isotrain {

/// What a chunk of the pipeline does on this rank.
template <class T>
struct PipelineChunk {
  int number = 0;  // in the pipeline
  int slots = 1;
  std::function<void(int micro_batch)> forward;
  std::function<void(int micro_batch)> backward_input;   // `backward` calls it,
  std::function<void(int micro_batch)> backward_weight;  // and then this
  /// (n,d) of the micro-batch: what enters the chunk, what leaves it, and the gradient of the stream, which is first
  /// that of what left, then that of what entered.
  std::function<Matrix<T>(int micro_batch)> input, output, stream_gradient;
};

/// Executes a stage's items of a schedule: runs the chunks, and hands tensors to the neighbouring ones, by messages
/// where they are on another rank. Sends wait for the receiver only when their memory is needed again.
template <class T>
class PipelineExecutor {
 public:
  /// `pipeline`: rank = stage. The chunks are those of this rank, ascending.
  PipelineExecutor(Communicator const& pipeline, std::vector<PipelineChunk<T>> chunks);

  /// Collective over the pipeline: every stage with its items of one schedule.
  void run(ScheduleSpec const& spec, std::span<ScheduleItem const> items);

 private:
  PipelineChunk<T> const* find(int number) const;
  void execute(ScheduleSpec const& spec, ScheduleItem const& item);
  /// Before the memory of a slot is written again.
  void wait_for_send(int chunk, bool gradient, int micro_batch);
  void send(ScheduleSpec const& spec, ScheduleItem const& item, Matrix<T> tensor);
  void receive(ScheduleSpec const& spec, ScheduleItem const& item, Matrix<T> tensor);
  void hand_over(ScheduleItem const& item);

  Communicator const& pipeline_;
  std::vector<PipelineChunk<T>> chunks_;
  std::map<std::tuple<int, bool, int>, std::unique_ptr<Messages>> sends_;  // by chunk, gradient, slot
};

/// The items of a stage for forward passes only, one micro-batch after the other.
std::vector<ScheduleItem> forward_items(ScheduleSpec const& spec, int stage, int micro_batches);

}  // namespace isotrain
