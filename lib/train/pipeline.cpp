#include "lib/train/pipeline.h"

#include <algorithm>

#include "lib/base/bfloat16.h"

namespace isotrain {
namespace {

template <class T>
std::span<T> elements(Matrix<T> tensor) {
  return {tensor.data, static_cast<std::size_t>(tensor.rows * tensor.cols)};
}

/// Messages of one kind between two chunks arrive in the order in which they are sent.
int tag_of(Message const& message) {
  return 2 * message.to_chunk + (message.is_gradient ? 1 : 0);
}

}  // namespace

template <class T>
PipelineExecutor<T>::PipelineExecutor(Communicator const& pipeline, std::vector<PipelineChunk<T>> chunks)
    : pipeline_(pipeline), chunks_(std::move(chunks)) {}

template <class T>
PipelineChunk<T> const* PipelineExecutor<T>::find(int number) const {
  auto const found = std::ranges::find(chunks_, number, &PipelineChunk<T>::number);
  return found == chunks_.end() ? nullptr : &*found;
}

template <class T>
void PipelineExecutor<T>::run(ScheduleSpec const& spec, std::span<ScheduleItem const> items) {
  for (auto const& item : items) execute(spec, item);
  for (auto& [key, messages] : sends_) messages->wait();
  sends_.clear();
}

template <class T>
void PipelineExecutor<T>::wait_for_send(int chunk, bool gradient, int micro_batch) {
  auto const found = sends_.find({chunk, gradient, micro_batch % find(chunk)->slots});
  if (found == sends_.end()) return;
  found->second->wait();
  sends_.erase(found);
}

template <class T>
void PipelineExecutor<T>::send(ScheduleSpec const& spec, ScheduleItem const& item, Matrix<T> tensor) {
  auto const message = message_of(item);
  int const slot = item.micro_batch % find(item.chunk)->slots;
  auto& messages = sends_[{item.chunk, message.is_gradient, slot}];
  messages = std::make_unique<Messages>(pipeline_);
  messages->send(std::span<T const>(elements(tensor)), peer_of(spec, item), tag_of(message));
}

template <class T>
void PipelineExecutor<T>::receive(ScheduleSpec const& spec, ScheduleItem const& item, Matrix<T> tensor) {
  Messages messages(pipeline_);
  messages.receive(elements(tensor), peer_of(spec, item), tag_of(message_of(item)));
  messages.wait();
}

/// To the neighbouring chunk, if it is on this rank.
template <class T>
void PipelineExecutor<T>::hand_over(ScheduleItem const& item) {
  bool const forward = item.action == Action::forward;
  auto const* const from = find(item.chunk);
  auto const* const to = find(forward ? item.chunk + 1 : item.chunk - 1);
  if (to == nullptr) return;
  int const m = item.micro_batch;
  if (!forward) wait_for_send(to->number, true, m);
  auto const source = elements(forward ? from->output(m) : from->stream_gradient(m));
  std::ranges::copy(source, elements(forward ? to->input(m) : to->stream_gradient(m)).begin());
}

template <class T>
void PipelineExecutor<T>::execute(ScheduleSpec const& spec, ScheduleItem const& item) {
  auto const& chunk = *find(item.chunk);
  int const m = item.micro_batch;
  switch (item.action) {
    case Action::receive_activation:
      receive(spec, item, chunk.input(m));
      break;
    case Action::forward:
      wait_for_send(item.chunk, false, m);
      chunk.forward(m);
      hand_over(item);
      break;
    case Action::send_activation:
      send(spec, item, chunk.output(m));
      break;
    case Action::receive_gradient:
      wait_for_send(item.chunk, true, m);
      receive(spec, item, chunk.stream_gradient(m));
      break;
    case Action::backward:
    case Action::backward_input:
      // The head begins the gradient in memory that may still be on its way as that of an earlier micro-batch.
      wait_for_send(item.chunk, true, m);
      chunk.backward_input(m);
      if (item.action == Action::backward) chunk.backward_weight(m);
      hand_over(item);
      break;
    case Action::backward_weight:
      chunk.backward_weight(m);
      break;
    case Action::send_gradient:
      send(spec, item, chunk.stream_gradient(m));
      break;
  }
}

std::vector<ScheduleItem> forward_items(ScheduleSpec const& spec, int stage, int micro_batches) {
  std::vector<ScheduleItem> items;
  for (int m = 0; m < micro_batches; ++m) {
    for (int const chunk : chunks_of_stage(spec, stage)) {
      bool const from_other = chunk > 0 && stage_of_chunk(spec, chunk - 1) != stage;
      bool const to_other = chunk + 1 < spec.num_chunks() && stage_of_chunk(spec, chunk + 1) != stage;
      if (from_other) items.push_back({Action::receive_activation, chunk, m});
      items.push_back({Action::forward, chunk, m});
      if (to_other) items.push_back({Action::send_activation, chunk, m});
    }
  }
  return items;
}

template class PipelineExecutor<float>;
template class PipelineExecutor<bfloat16>;

}  // namespace isotrain
