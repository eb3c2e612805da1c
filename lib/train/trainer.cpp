#include "lib/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "kernels/reduce.h"
#include "lib/comm/agree.h"
#include "lib/model/parameter_list.h"
#include "lib/parallel/lanes.h"
#include "lib/train/resume.h"
#include "lib/train/stored_model.h"
#include "lib/train/validation.h"

namespace isotrain {
namespace {

AdamW::Settings optimizer_settings(TrainSettings const& s) {
  return {.beta1 = s.optim.beta1,
          .beta2 = s.optim.beta2,
          .epsilon = s.optim.epsilon,
          .weight_decay = s.optim.weight_decay,
          .clip = s.optim.clip};
}

std::span<double> part(std::vector<double>& values, std::int64_t first, std::int64_t count) {
  return std::span(values).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

template <class T>
Trainer<T>::Trainer(TrainPlan const& plan, Cpu at, Communicator const& comm)
    : plan_(plan),
      at_(at),
      comm_(comm),
      table_(model_parameters(plan.config)),
      lanes_of_ranks_(lanes_of_ranks(plan.settings.repro.lanes, comm.size())),
      lanes_(lanes_of_ranks_[static_cast<std::size_t>(comm.rank())]),
      range_(flat_range(table_, comm.size(), comm.rank())),
      memory_(plan, table_, comm),
      model_(at, plan.config, plan.model, table_, memory_.layout().model, memory_.buffers(), memory_.weights(table_)),
      lane_sum_(lanes_, plan.settings.repro.lanes, memory_.lane_gradients()),
      reduction_(comm, plan.settings.repro.lanes, lanes_of_ranks_, flat_offsets(table_, comm.size())),
      optimizer_(optimizer_settings(plan.settings), table_, {range_}) {
  auto const& s = plan.settings;
  double const stddev = s.model.init_std > 0 ? s.model.init_std : plan.config.initializer_range;
  initialize(table_, memory_.optimizer_state().weight, range_, static_cast<std::uint64_t>(s.train.seed), stddev);
  publish_weights();
  fingerprint_ = hash_weights();
  start_reading();
}

template <class T>
StepOutcome Trainer<T>::step() {
  std::int64_t const sequences = plan_.batches.sequences(tokens_);
  std::int64_t const samples = sequences / plan_.settings.repro.lanes;  // of a lane
  std::int64_t const step_tokens = sequences * plan_.settings.train.sequence;
  double const rate = plan_.learning_rate.at(step_ + 1, tokens_);
  LossScale const scale{static_cast<float>(1.0 / static_cast<double>(step_tokens)),
                        static_cast<float>(1.0 / static_cast<double>(sequences))};

  read_batch(samples);
  std::ranges::fill(model_.expert_loads(), 0);
  for (std::int64_t lane = 0; lane < lanes_.size(); ++lane) accumulate_lane(lane, samples, scale);
  sum_over_lanes();
  Losses const losses = gather_losses(samples);
  if (!std::isfinite(losses.token + losses.balance)) report_non_finite("loss", samples);
  auto const update =
      optimizer_.step(at_, comm_, step_ + 1, rate, memory_.optimizer_state(), memory_[memory_.layout().gradient]);
  if (!update.finite()) report_non_finite("gradient", samples);
  publish_weights();
  double const max_violation = balance_experts();

  step_ += 1;
  tokens_ += step_tokens;
  lane_position_ += samples;
  fingerprint_ = hash_weights();
  return {.step = step_,
          .tokens = tokens_,
          .step_tokens = step_tokens,
          .loss = losses.token / static_cast<double>(step_tokens),
          .balance_loss = losses.balance / static_cast<double>(sequences),
          .gradient_norm = update.gradient_norm,
          .learning_rate = rate,
          .max_violation = max_violation,
          .fingerprint = fingerprint_};
}

template <class T>
void Trainer<T>::read_batch(std::int64_t samples) {
  auto const rows = static_cast<std::size_t>(lanes_.size() * samples * plan_.settings.train.sequence);
  run_collectively(comm_, [&] {
    reader_->read(samples, memory_[memory_.layout().tokens].first(rows), memory_[memory_.layout().targets].first(rows));
  });
}

/// Samples [first, first + count) of this rank's part of the batch.
template <class T>
Batch Trainer<T>::batch(std::int64_t first, std::int64_t count) const {
  auto const begin = static_cast<std::size_t>(first * plan_.settings.train.sequence);
  auto const rows = static_cast<std::size_t>(count * plan_.settings.train.sequence);
  return {memory_[memory_.layout().tokens].subspan(begin, rows), memory_[memory_.layout().targets].subspan(begin, rows),
          static_cast<int>(count)};
}

/// The gradient of a lane is one chain over its samples in ascending order, whatever the micro-batch.
template <class T>
void Trainer<T>::accumulate_lane(std::int64_t lane, std::int64_t samples, LossScale scale) {
  std::span<float> const gradient = lane_sum_.next();
  kernels::fill_zero(at_, gradient);
  std::int64_t const end = (lane + 1) * samples;
  for (std::int64_t first = lane * samples; first < end; first += plan_.model.micro_batch) {
    std::int64_t const count = std::min<std::int64_t>(plan_.model.micro_batch, end - first);
    model_.forward_backward(batch(first, count), gradient, scale, part(sample_loss_, first, count),
                            part(sample_balance_, first, count));
  }
  model_.finish_gradients(gradient);
  lane_sum_.push(at_);
}

template <class T>
void Trainer<T>::sum_over_lanes() {
  auto const partials = lane_sum_.partials();
  reduction_.reduce_scatter(at_, partials, memory_[memory_.layout().gradient], memory_[memory_.layout().reduction]);
  lane_sum_.reset();
}

/// Every rank rounds the weights that it updates to what the model computes with, and gets all others'.
template <class T>
void Trainer<T>::publish_weights() {
  std::span<float const> const master = memory_.optimizer_state().weight;
  auto const share = [&](auto weights, std::int64_t segment_begin, std::int64_t segment_end) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < comm_.size(); ++r) {
      FlatRange const range = flat_range(table_, comm_.size(), r);
      counts.push_back(
          std::max<std::int64_t>(0, std::min(range.end, segment_end) - std::max(range.begin, segment_begin)));
    }
    std::int64_t const begin = std::clamp(range_.begin, segment_begin, segment_end);
    auto const size = static_cast<std::size_t>(counts[static_cast<std::size_t>(comm_.rank())]);
    auto const own = weights.subspan(static_cast<std::size_t>(begin - segment_begin), size);
    if (size > 0) kernels::convert(at_, own, master.subspan(static_cast<std::size_t>(begin - range_.begin), size));
    comm_.all_gather(std::span<typename decltype(own)::value_type const>(own), weights, counts);
  };
  share(memory_[memory_.layout().matrices], 0, table_.matrix_size());
  share(memory_[memory_.layout().fp32], table_.matrix_size(), table_.flat_size());
}

/// Loads over the whole batch move the router biases (DeepSeek-V3) and tell how even the experts' work was.
template <class T>
double Trainer<T>::balance_experts() {
  auto const loads = model_.expert_loads();
  if (loads.empty()) return 0;
  comm_.sum(loads);
  auto const experts = static_cast<std::size_t>(plan_.config.num_experts);
  auto const& balance = plan_.settings.balance;
  bool const moving = static_cast<double>(tokens_) < balance.bias_fraction * static_cast<double>(plan_.run.tokens);
  if (moving && !router_bias_names(plan_.config).empty()) {
    update_router_bias(model_.router_biases(), loads, plan_.config.num_experts, static_cast<float>(balance.bias_rate));
  }
  double violations = 0;
  for (std::size_t first = 0; first < loads.size(); first += experts) {
    auto const layer = loads.subspan(first, experts);
    std::int64_t sum = 0;
    for (auto const load : layer) sum += load;
    double const mean = static_cast<double>(sum) / static_cast<double>(experts);
    violations += (static_cast<double>(std::ranges::max(layer)) - mean) / mean;
  }
  return violations / static_cast<double>(loads.size() / experts);
}

/// Sums over the whole batch, samples in ascending order.
template <class T>
typename Trainer<T>::Losses Trainer<T>::gather_losses(std::int64_t samples) const {
  std::vector<std::int64_t> counts;
  for (auto const& lanes : lanes_of_ranks_) counts.push_back(lanes.size() * samples);
  auto const own = static_cast<std::size_t>(counts[static_cast<std::size_t>(comm_.rank())]);
  auto const ordered_sum = [&](std::vector<double> const& mine) {
    std::vector<double> all(static_cast<std::size_t>(plan_.settings.repro.lanes * samples));
    comm_.all_gather(std::span(mine).first(own), std::span(all), counts);
    double sum = 0;
    for (double const loss : all) sum += loss;
    return sum;
  };
  return {ordered_sum(sample_loss_), ordered_sum(sample_balance_)};
}

template <class T>
std::uint64_t Trainer<T>::hash_weights() const {
  return comm_.sum(kernels::hash(at_, memory_.optimizer_state().weight, static_cast<std::uint64_t>(range_.begin)));
}

/// Looks for where it began: the forward pass of each sample again, then the gradients.
template <class T>
void Trainer<T>::report_non_finite(std::string const& what, std::int64_t samples) {
  std::string const step = "step " + std::to_string(step_ + 1) + ": ";
  run_collectively(comm_, [&] {
    for (std::int64_t i = 0; i < lanes_.size() * samples; ++i) {
      if (auto const found = model_.find_non_finite(batch(i, 1))) {
        throw Error(step + "NaN or infinity in " + *found,
                    "lane " + std::to_string(lanes_.begin + i / samples) + ", sample " + std::to_string(i % samples),
                    "a lower --optim.lr or --optim.clip may help; the last checkpoint is from before it");
      }
    }
  });
  auto const found = find_non_finite(at_, comm_, table_, {range_}, memory_[memory_.layout().gradient]);
  std::string const where = found ? "gradient of " + found->parameter + ", element " + std::to_string(found->element)
                                  : what + " alone, all activations and gradients are finite";
  throw AgreedError(step + "NaN or infinity in the " + where, "",
                    "a lower --optim.lr or --optim.clip may help; the last checkpoint is from before it");
}

template <class T>
void Trainer<T>::start_reading() {
  auto const& s = plan_.settings;
  std::int64_t const samples = s.train.global_batch / s.repro.lanes;
  run_collectively(comm_, [&] {
    reader_.reset();
    reader_.emplace(plan_.corpus, static_cast<std::uint64_t>(s.train.seed),
                    data::LaneRange{lanes_.begin, lanes_.size(), s.repro.lanes}, s.train.sequence, lane_position_,
                    2 * samples);
    if (s.eval.every > 0 && !validation_) {
      validation_.emplace(data::make_split_reader(plan_.corpus, data::Split::validation, s.train.sequence));
    }
  });
  sample_loss_.resize(static_cast<std::size_t>(lanes_.size() * samples));
  sample_balance_.resize(sample_loss_.size());
}

template <class T>
double Trainer<T>::validate() {
  expects(validation_.has_value(), "eval.every to be set");
  std::int64_t const wanted = plan_.settings.eval.windows;
  std::int64_t const windows = wanted > 0 ? std::min(wanted, validation_->size()) : validation_->size();
  return validation_loss(comm_, model_, *validation_, windows).loss;
}

template <class T>
std::filesystem::path Trainer<T>::save(std::filesystem::path const& folder, io::CheckpointHeader header) {
  header.step = static_cast<std::uint64_t>(step_);
  header.tokens = static_cast<std::uint64_t>(tokens_);
  header.weights_fingerprint = fingerprint_;
  header.lane_positions.assign(static_cast<std::size_t>(plan_.settings.repro.lanes), lane_position_);
  header.index = checkpoint_index(table_);
  auto const experts = static_cast<std::size_t>(plan_.config.num_experts);
  auto const names = router_bias_names(plan_.config);
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto const biases = model_.router_biases().subspan(i * experts, experts);
    header.state[names[i]].assign(biases.begin(), biases.end());
  }
  auto const state = memory_.optimizer_state();
  auto const total = static_cast<std::uint64_t>(table_.flat_size());
  std::vector<io::FlatRuns> const flat{{"master", total, {range_}, state.weight},
                                       {"adam_m", total, {range_}, state.m},
                                       {"adam_v", total, {range_}, state.v}};
  return io::write_checkpoint(comm_, folder, std::move(header), flat,
                              {.keep = static_cast<int>(plan_.settings.checkpoint.keep), .threads = at_.threads()});
}

template <class T>
void Trainer<T>::restore(io::CheckpointReader const& checkpoint) {
  auto const& header = checkpoint.header();
  auto const state = memory_.optimizer_state();
  run_collectively(comm_, [&] {
    checkpoint.read("master", std::vector{range_}, state.weight);
    checkpoint.read("adam_m", std::vector{range_}, state.m);
    checkpoint.read("adam_v", std::vector{range_}, state.v);
    std::ranges::copy(stored_router_biases(header, plan_.config), model_.router_biases().begin());
  });
  step_ = static_cast<std::int64_t>(header.step);
  tokens_ = static_cast<std::int64_t>(header.tokens);
  lane_position_ = header.lane_positions.front();
  publish_weights();
  fingerprint_ = hash_weights();
  if (fingerprint_ != header.weights_fingerprint) {
    throw AgreedError("the weights of the checkpoint do not have its fingerprint", "", "resume from an older one");
  }
  start_reading();
}

template class Trainer<float>;
template class Trainer<bfloat16>;

}  // namespace isotrain
