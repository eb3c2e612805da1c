#include "lib/train/model_pipeline.h"

#include <algorithm>

namespace isotrain {

template <class T>
ModelPipeline<T>::ModelPipeline(RankPlan const& rank, TrainMemory<T> const& memory, Cpu at)
    : rank_(rank),
      memory_(memory),
      at_(at),
      sums_(memory[memory.layout().lane_pieces]),
      pending_(rank.chunks().size()) {
  auto const& train = rank.train();
  for (std::size_t c = 0; c < rank.chunks().size(); ++c) {
    auto const& chunk = rank.chunks()[c];
    auto const& names = memory.layout().chunks[c];
    models_.push_back(std::make_unique<Model<Cpu, T>>(at, train.config, chunk.options, chunk.part, chunk.shard,
                                                      names.model, memory.buffers(), memory.weights(c)));
    models_.back()->between_blocks([this] { sums_.progress(); });
    gradients_.emplace_back(
        chunk.shard, chunk.part, chunk.domains, rank.lanes(),
        ChunkReductions(chunk.shard, train.config, chunk.part, chunk.domains, rank.lanes(), rank.mesh()),
        names.gradients, memory.buffers());
  }
}

template <class T>
int ModelPipeline<T>::slot(std::size_t chunk, int micro_batch) const {
  return micro_batch % rank_.chunks()[chunk].part.slots;
}

template <class T>
std::int64_t ModelPipeline<T>::passes_of_turn(Samples const& samples) const {
  return samples.lane_samples / rank_.train().model.micro_batch;
}

/// Samples [first, first + count) of this rank's; without tokens where it does not read.
template <class T>
Batch ModelPipeline<T>::batch_of(Samples const& samples, std::int64_t first, int count) const {
  std::int64_t const sequence = rank_.train().model.sequence;
  Batch batch;
  batch.samples = count;
  if (samples.tokens.empty()) return batch;
  auto const begin = static_cast<std::size_t>(first * sequence), rows = static_cast<std::size_t>(count * sequence);
  batch.tokens = samples.tokens.subspan(begin, rows);
  batch.targets = samples.targets.subspan(begin, rows);
  return batch;
}

template <class T>
typename ModelPipeline<T>::MicroBatch ModelPipeline<T>::micro_batch(Samples const& samples, int number) const {
  int const size = rank_.train().model.micro_batch;
  std::int64_t const per_turn = passes_of_turn(samples);
  MicroBatch result;
  result.turn = number / per_turn;
  if (result.turn >= rank_.lanes().own().size()) return result;
  result.first = result.turn * samples.lane_samples + number % per_turn * size;
  result.batch = batch_of(samples, result.first, size);
  return result;
}

template <class T>
PipelineChunk<T> ModelPipeline<T>::chunk_buffers(std::size_t chunk, std::function<int(int)> samples) const {
  auto const* const model = models_[chunk].get();
  PipelineChunk<T> made;
  made.number = rank_.chunks()[chunk].number;
  made.slots = rank_.chunks()[chunk].part.slots;
  made.input = [=, this](int m) { return model->input(slot(chunk, m), samples(m)); };
  made.output = [=, this](int m) { return model->output(slot(chunk, m), samples(m)); };
  made.stream_gradient = [=, this](int m) { return model->stream_gradient(slot(chunk, m), samples(m)); };
  return made;
}

template <class T>
void ModelPipeline<T>::forward(std::size_t chunk, Samples const& samples, int m) {
  auto const current = micro_batch(samples, m);
  auto& model = *models_[chunk];
  model.forward(slot(chunk, m), current.batch, true);
  if (!forward_observer_) return;
  auto const& part = model.part();
  int const end = part.end_layer(model.config());
  if (part.has_embedding()) forward_observer_(-1, current.first, model.input(slot(chunk, m), current.batch.samples));
  for (int layer = part.first_layer(); layer < end; ++layer) {
    forward_observer_(layer, current.first, model.layer_input(slot(chunk, m), layer + 1, current.batch.samples));
  }
}

template <class T>
void ModelPipeline<T>::backward_input(std::size_t chunk, Samples const& samples, int m, LossScale scale) {
  auto const current = micro_batch(samples, m);
  // The gradients of one lane are complete before those of the next begin.
  auto& pending = pending_[chunk];
  while (!pending.empty() && micro_batch(samples, pending.front()).turn != current.turn) {
    backward_weight(chunk, samples, pending.front());
  }
  if (m % passes_of_turn(samples) == 0) gradients_[chunk].begin_turn(at_);
  pending.push_back(m);
  observed_sample_ = current.first;
  std::span<double> loss;
  Matrix<double> balance;
  auto const& part = models_[chunk]->part();
  auto const count = static_cast<std::size_t>(current.batch.samples);
  if (part.has_head(rank_.train().config)) loss = samples.loss.subspan(static_cast<std::size_t>(current.first), count);
  if (samples.balance.data != nullptr) balance = samples.balance.slice_cols(current.first, current.batch.samples);
  models_[chunk]->backward_input(slot(chunk, m), current.batch, gradients_[chunk].where(), scale, loss, balance);
}

template <class T>
void ModelPipeline<T>::backward_weight(std::size_t chunk, Samples const& samples, int m) {
  auto& pending = pending_[chunk];
  if (pending.empty() || pending.front() > m) return;  // done before the next lane began
  expects(pending.front() == m, "weight gradients in the order of the micro-batches");
  pending.pop_front();
  auto const current = micro_batch(samples, m);
  models_[chunk]->backward_weight(slot(chunk, m), current.batch, gradients_[chunk].where());
  if ((m + 1) % passes_of_turn(samples) != 0) return;
  gradients_[chunk].end_turn(at_, memory_[memory_.layout().tensor_pieces]);
  if (rank_.train().settings.parallel.overlap && current.turn + 1 == rank_.lanes().turns()) start_sums(chunk);
}

template <class T>
void ModelPipeline<T>::start_sums(std::size_t chunk) {
  auto const& domains = rank_.chunks()[chunk].domains;
  auto const gradient = memory_[memory_.layout().gradient];
  for (std::size_t d = 0; d < domains.size(); ++d) {
    gradients_[chunk].start(sums_, at_, d, rank_.part_of(gradient, chunk, d));
  }
  if (gradients_[chunk].has_tied()) gradients_[chunk].start_tied(sums_, at_, memory_[memory_.layout().tied]);
}

template <class T>
void ModelPipeline<T>::finish_sums() {
  if (!rank_.train().settings.parallel.overlap) {
    for (std::size_t c = 0; c < gradients_.size(); ++c) start_sums(c);
  }
  sums_.finish();
  for (auto& gradient : gradients_) gradient.reset();
}

template <class T>
void ModelPipeline<T>::train(Samples const& samples, LossScale scale) {
  auto const spec = rank_.schedule(samples.lane_samples);
  auto const size = [&](int m) { return micro_batch(samples, m).batch.samples; };
  std::vector<PipelineChunk<T>> chunks;
  for (std::size_t c = 0; c < models_.size(); ++c) {
    auto chunk = chunk_buffers(c, size);
    chunk.forward = [&, c](int m) { forward(c, samples, m); };
    chunk.backward_input = [&, c](int m) { backward_input(c, samples, m, scale); };
    chunk.backward_weight = [&, c](int m) { backward_weight(c, samples, m); };
    chunks.push_back(std::move(chunk));
  }
  PipelineExecutor<T> executor(rank_.mesh().pipeline(), std::move(chunks));
  executor.run(spec, make_schedule(spec, rank_.mesh().coordinates().pipeline));
  finish_sums();
}

template <class T>
void ModelPipeline<T>::evaluate(Evaluation const& evaluation) {
  auto const samples = [&](int pass) { return evaluation.batch(pass).samples; };
  run_forward(evaluation.passes, samples, [&](std::size_t chunk, int pass) {
    auto const batch = evaluation.batch(pass);
    auto& model = *models_[chunk];
    model.forward(slot(chunk, pass), batch, false);
    if (model.part().has_head(model.config())) model.losses(slot(chunk, pass), batch, evaluation.loss(pass));
  });
}

/// Forward passes only, one after the other, of as many samples each as `samples` says.
template <class T>
void ModelPipeline<T>::run_forward(int passes, std::function<int(int)> const& samples,
                                   std::function<void(std::size_t, int)> const& forward) {
  auto const spec = rank_.schedule(rank_.train().model.micro_batch);
  std::vector<PipelineChunk<T>> chunks;
  for (std::size_t c = 0; c < models_.size(); ++c) {
    auto chunk = chunk_buffers(c, samples);
    chunk.forward = [&, c](int pass) { forward(c, pass); };
    chunks.push_back(std::move(chunk));
  }
  PipelineExecutor<T> executor(rank_.mesh().pipeline(), std::move(chunks));
  executor.run(spec, forward_items(spec, rank_.mesh().coordinates().pipeline, passes));
}

template <class T>
std::optional<typename ModelPipeline<T>::Found> ModelPipeline<T>::find_non_finite(Samples const& samples) {
  auto const& lanes = rank_.lanes();
  std::int64_t const own = lanes.own().size() * samples.lane_samples;
  auto const one = [&](int m) { return m < own ? batch_of(samples, m, 1) : Batch(); };
  std::optional<Found> first;
  run_forward(
      static_cast<int>(lanes.turns() * samples.lane_samples), [&](int m) { return one(m).samples; },
      [&](std::size_t chunk, int m) {
        auto const found = models_[chunk]->find_non_finite(slot(chunk, m), one(m));
        if (found && !first) first = Found{m, rank_.chunks()[chunk].number, *found};
      });
  return first;
}

template <class T>
void ModelPipeline<T>::observe(Observer forward, Observer backward) {
  forward_observer_ = std::move(forward);
  for (auto& model : models_) {
    model->observe_gradients(
        [this, backward](int layer, Matrix<T const> rows) { backward(layer, observed_sample_, rows); });
  }
}

template class ModelPipeline<float>;
template class ModelPipeline<bfloat16>;

}  // namespace isotrain
