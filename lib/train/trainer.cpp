#include "lib/train/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <limits>

#include "lib/comm/agree.h"
#include "lib/model/parameter_list.h"
#include "lib/train/resume.h"
#include "lib/train/stored_model.h"
#include "lib/train/validation.h"
#include "lib/train/weights.h"

namespace isotrain {
namespace {

AdamW::Settings optimizer_settings(TrainSettings const& s) {
  return {.beta1 = s.optim.beta1,
          .beta2 = s.optim.beta2,
          .epsilon = s.optim.epsilon,
          .weight_decay = s.optim.weight_decay,
          .clip = s.optim.clip};
}

/// How much more than the mean the busiest expert of each layer got, as a share of the mean.
std::vector<double> max_violations(std::span<std::int64_t const> loads, std::size_t experts) {
  std::vector<double> violations;
  for (std::size_t first = 0; first < loads.size(); first += experts) {
    auto const layer = loads.subspan(first, experts);
    std::int64_t sum = 0;
    for (auto const load : layer) sum += load;
    double const mean = static_cast<double>(sum) / static_cast<double>(experts);
    violations.push_back((static_cast<double>(std::ranges::max(layer)) - mean) / mean);
  }
  return violations;
}

}  // namespace

template <class T>
Trainer<T>::Trainer(RankPlan const& rank, Cpu at)
    : rank_(rank),
      plan_(rank.train()),
      at_(at),
      world_(rank.mesh().world()),
      memory_(rank),
      pipeline_(rank, memory_, at),
      optimizer_(optimizer_settings(plan_.settings), rank.table(), rank.own()),
      router_biases_(static_cast<std::size_t>(plan_.config.num_moe_layers()) *
                     static_cast<std::size_t>(plan_.config.num_experts)) {
  auto const& s = plan_.settings;
  double const stddev = s.model.init_std > 0 ? s.model.init_std : plan_.config.initializer_range;
  auto weights = memory_.optimizer_state().weight;
  for (FlatRange const& run : rank.own()) {
    auto const part = weights.first(static_cast<std::size_t>(run.size()));
    initialize(rank.table(), part, run, static_cast<std::uint64_t>(s.train.seed), stddev);
    weights = weights.subspan(part.size());
  }
  publish_weights(rank_, memory_, at_);
  fingerprint_ = hash_weights(rank_, at_, memory_.optimizer_state().weight);
  if (s.repro.ledger) {
    hashes_.emplace(rank_, at_);
    hashes_->watch(pipeline_);
  }
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
  for (std::size_t c = 0; c < pipeline_.num_chunks(); ++c) std::ranges::fill(pipeline_.model(c).expert_loads(), 0);
  if (hashes_) hashes_->begin(samples);
  pipeline_.train(samples_of_step(samples), scale);
  meet_tied_gradients();
  Losses const losses = gather_losses(samples);
  if (!std::isfinite(losses.token + losses.balance)) report_non_finite("loss", samples);
  auto const update =
      optimizer_.step(at_, world_, step_ + 1, rate, memory_.optimizer_state(), memory_[memory_.layout().gradient]);
  if (!update.finite()) report_non_finite("gradient", samples);
  publish_weights(rank_, memory_, at_);
  auto max_violation = balance_experts();

  step_ += 1;
  tokens_ += step_tokens;
  lane_position_ += samples;
  fingerprint_ = hash_weights(rank_, at_, memory_.optimizer_state().weight);
  std::vector<std::string> unused;
  if (first_step_) unused = find_unused(rank_, memory_[memory_.layout().gradient]);
  first_step_ = false;
  return {.step = step_,
          .tokens = tokens_,
          .step_tokens = step_tokens,
          .loss = losses.token / static_cast<double>(step_tokens),
          .balance_loss = losses.balance / static_cast<double>(sequences),
          .gradient_norm = update.gradient_norm,
          .learning_rate = rate,
          .max_violation = std::move(max_violation),
          .fingerprint = fingerprint_,
          .ledger = record(samples),
          .unused = std::move(unused)};
}

/// The step's hashes for the ledger.
template <class T>
std::optional<LedgerStep> Trainer<T>::record(std::int64_t samples) {
  if (!hashes_) return std::nullopt;
  auto const own = static_cast<std::size_t>(rank_.lanes().own().size() * samples);
  LedgerStep record = hashes_->finish(std::span(sample_loss_).first(own));
  record.step = step_;
  record.weight_gradient = hash_by_parameter(rank_, at_, memory_[memory_.layout().gradient]);
  record.weight = hash_by_parameter(rank_, at_, memory_.optimizer_state().weight);
  record.fingerprint = fingerprint_;
  return record;
}

/// Only the ends of the pipeline see tokens.
template <class T>
bool Trainer<T>::reads() const {
  return memory_.layout().tokens.count > 0;
}

template <class T>
void Trainer<T>::read_batch(std::int64_t samples) {
  auto const rows = static_cast<std::size_t>(rank_.lanes().own().size() * samples * plan_.settings.train.sequence);
  run_collectively(world_, [&] {
    if (!reads()) return;
    reader_->read(samples, memory_[memory_.layout().tokens].first(rows), memory_[memory_.layout().targets].first(rows));
  });
}

template <class T>
typename ModelPipeline<T>::Samples Trainer<T>::samples_of_step(std::int64_t samples) {
  std::int64_t const own = rank_.lanes().own().size() * samples;
  std::ranges::fill(sample_balance_, 0.0);
  return {.tokens = memory_[memory_.layout().tokens],
          .targets = memory_[memory_.layout().targets],
          .lane_samples = samples,
          .loss = sample_loss_,
          .balance = {sample_balance_.data(), plan_.config.num_moe_layers(), own}};
}

/// The gradient of a tied embedding is that of its output side plus that of its input side, each over all lanes.
template <class T>
void Trainer<T>::meet_tied_gradients() {
  if (!plan_.config.tied_embeddings) return;
  std::span<float> output_side;
  for (std::size_t c = 0; c < rank_.chunks().size(); ++c) {
    auto const& domains = rank_.chunks()[c].domains;
    auto const tied = std::ranges::find(domains, Domain::Kind::tied, &Domain::kind);
    if (tied == domains.end()) continue;
    output_side =
        rank_.part_of(memory_[memory_.layout().gradient], c, static_cast<std::size_t>(tied - domains.begin()));
  }
  isotrain::meet_tied_gradients(rank_, at_, memory_[memory_.layout().tied], output_side);
}

/// Loads over the whole batch move the router biases (DeepSeek-V3) and tell how even the experts' work was.
template <class T>
std::vector<double> Trainer<T>::balance_experts() {
  if (router_biases_.empty()) return {};
  std::vector<std::int64_t> loads(router_biases_.size());
  for (std::size_t c = 0; c < pipeline_.num_chunks(); ++c) {
    std::ranges::transform(loads, pipeline_.model(c).expert_loads(), loads.begin(), std::plus());
  }
  world_.sum(std::span(loads));
  auto const& balance = plan_.settings.balance;
  bool const moving = static_cast<double>(tokens_) < balance.bias_fraction * static_cast<double>(plan_.run.tokens);
  if (moving && !router_bias_names(plan_.config).empty()) {
    update_router_bias(router_biases_, loads, plan_.config.num_experts, static_cast<float>(balance.bias_rate));
    set_router_biases(router_biases_);
  }
  return max_violations(loads, static_cast<std::size_t>(plan_.config.num_experts));
}

template <class T>
void Trainer<T>::set_router_biases(std::span<float const> biases) {
  for (std::size_t c = 0; c < pipeline_.num_chunks(); ++c) {
    std::ranges::copy(biases, pipeline_.model(c).router_biases().begin());
  }
}

/// Sums over the whole batch, samples in ascending order; of a sample's balancing losses, the last layer's first.
template <class T>
typename Trainer<T>::Losses Trainer<T>::gather_losses(std::int64_t samples) {
  auto const& mesh = rank_.mesh();
  auto const own = static_cast<std::size_t>(rank_.lanes().own().size() * samples);
  auto const spec = rank_.schedule(samples);
  mesh.pipeline().broadcast(std::span(sample_loss_).first(own), stage_of_chunk(spec, spec.num_chunks() - 1));
  // Each layer's losses are on one stage, zeros on the others.
  std::vector<std::uint64_t> bits(sample_balance_.size());
  std::ranges::transform(sample_balance_, bits.begin(), [](double x) { return std::bit_cast<std::uint64_t>(x); });
  mesh.pipeline().bit_or(std::span(bits));
  std::vector<double> balance(own);
  auto const layers = static_cast<std::size_t>(plan_.config.num_moe_layers());
  for (std::size_t layer = layers; layer-- > 0;) {
    for (std::size_t i = 0; i < own; ++i) balance[i] += std::bit_cast<double>(bits[layer * own + i]);
  }

  std::vector<std::int64_t> counts;
  for (auto const& lanes : rank_.lanes().of_ranks) counts.push_back(lanes.size() * samples);
  auto const ordered_sum = [&](std::span<double const> mine) {
    std::vector<double> all(static_cast<std::size_t>(plan_.settings.repro.lanes * samples));
    mesh.data().all_gather(mine, std::span(all), std::span<std::int64_t const>(counts));
    double sum = 0;
    for (double const loss : all) sum += loss;
    return sum;
  };
  return {ordered_sum(std::span(sample_loss_).first(own)), ordered_sum(balance)};
}

/// Looks for where it began: the forward pass of each sample again, then the gradients.
template <class T>
void Trainer<T>::report_non_finite(std::string const& what, std::int64_t samples) {
  std::string const step = "step " + std::to_string(step_ + 1) + ": ";
  char const* const hint = "a lower --optim.lr or --optim.clip may help; the last checkpoint is from before it";
  auto const found = pipeline_.find_non_finite(samples_of_step(samples));
  // Of what all ranks found, the first that one rank would have come to.
  struct Where {
    std::int64_t sample = std::numeric_limits<std::int64_t>::max();  // of the batch
    std::int64_t chunk = 0;

    auto operator<=>(Where const&) const = default;
  };
  Where mine;
  if (found) mine = {rank_.lanes().own().begin * samples + found->sample, found->chunk};
  auto const places = world_.all_gather(mine);
  auto const first = std::ranges::min_element(places);
  if (*first != Where{}) {
    std::string const name = world_.broadcast(found ? found->what : "", static_cast<int>(first - places.begin()));
    throw AgreedError(
        step + "NaN or infinity in " + name,
        "lane " + std::to_string(first->sample / samples) + ", sample " + std::to_string(first->sample % samples),
        hint);
  }
  auto const gradient =
      isotrain::find_non_finite(at_, world_, rank_.table(), rank_.own(), memory_[memory_.layout().gradient]);
  std::string const where =
      gradient ? "gradient of " + gradient->parameter + ", element " + std::to_string(gradient->element)
               : what + " alone, all activations and gradients are finite";
  throw AgreedError(step + "NaN or infinity in the " + where, "", hint);
}

template <class T>
void Trainer<T>::start_reading() {
  auto const& s = plan_.settings;
  std::int64_t const samples = s.train.global_batch / s.repro.lanes;
  IndexRange const lanes = rank_.lanes().own();
  run_collectively(world_, [&] {
    reader_.reset();
    if (!reads()) return;
    reader_.emplace(plan_.corpus, static_cast<std::uint64_t>(s.train.seed),
                    data::LaneRange{lanes.begin, lanes.size(), s.repro.lanes}, s.train.sequence, lane_position_,
                    2 * samples);
  });
  run_collectively(world_, [&] {
    if (s.eval.every > 0 && !validation_) {
      validation_.emplace(data::make_split_reader(plan_.corpus, data::Split::validation, s.train.sequence));
    }
  });
  sample_loss_.resize(static_cast<std::size_t>(lanes.size() * samples));
  sample_balance_.resize(sample_loss_.size() * static_cast<std::size_t>(plan_.config.num_moe_layers()));
}

template <class T>
double Trainer<T>::validate() {
  expects(validation_.has_value(), "eval.every to be set");
  std::int64_t const wanted = plan_.settings.eval.windows;
  std::int64_t const windows = wanted > 0 ? std::min(wanted, validation_->size()) : validation_->size();
  auto const& mesh = rank_.mesh();
  auto const spec = rank_.schedule(plan_.model.micro_batch);
  int const head_stage = stage_of_chunk(spec, spec.num_chunks() - 1);
  ValidationShare share(mesh.data(), *validation_, windows, plan_.model);
  while (share.read(world_)) {
    pipeline_.evaluate({.passes = share.passes(),
                        .batch = [&](int pass) { return share.batch(pass); },
                        .loss = [&](int pass) { return share.loss(pass); }});
  }
  mesh.pipeline().broadcast(share.losses(), head_stage);
  return share.mean();
}

template <class T>
std::filesystem::path Trainer<T>::save(std::filesystem::path const& folder, io::CheckpointHeader header) {
  header.step = static_cast<std::uint64_t>(step_);
  header.tokens = static_cast<std::uint64_t>(tokens_);
  header.weights_fingerprint = fingerprint_;
  header.lane_positions.assign(static_cast<std::size_t>(plan_.settings.repro.lanes), lane_position_);
  header.index = checkpoint_index(rank_.table());
  auto const experts = static_cast<std::size_t>(plan_.config.num_experts);
  auto const names = router_bias_names(plan_.config);
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto const biases = std::span(router_biases_).subspan(i * experts, experts);
    header.state[names[i]].assign(biases.begin(), biases.end());
  }
  auto const state = memory_.optimizer_state();
  auto const total = static_cast<std::uint64_t>(rank_.table().flat_size());
  std::vector<io::FlatRuns> const flat{{"master", total, rank_.own(), state.weight},
                                       {"adam_m", total, rank_.own(), state.m},
                                       {"adam_v", total, rank_.own(), state.v}};
  return io::write_checkpoint(world_, folder, std::move(header), flat,
                              {.keep = static_cast<int>(plan_.settings.checkpoint.keep), .threads = at_.threads()});
}

template <class T>
void Trainer<T>::restore(io::CheckpointReader const& checkpoint) {
  auto const& header = checkpoint.header();
  auto const state = memory_.optimizer_state();
  run_collectively(world_, [&] {
    checkpoint.read("master", rank_.own(), state.weight);
    checkpoint.read("adam_m", rank_.own(), state.m);
    checkpoint.read("adam_v", rank_.own(), state.v);
    std::ranges::copy(stored_router_biases(header, plan_.config), router_biases_.begin());
  });
  set_router_biases(router_biases_);
  step_ = static_cast<std::int64_t>(header.step);
  tokens_ = static_cast<std::int64_t>(header.tokens);
  lane_position_ = header.lane_positions.front();
  publish_weights(rank_, memory_, at_);
  fingerprint_ = hash_weights(rank_, at_, state.weight);
  if (fingerprint_ != header.weights_fingerprint) {
    throw AgreedError("the weights of the checkpoint do not have its fingerprint", "", "resume from an older one");
  }
  start_reading();
}

template class Trainer<float>;
template class Trainer<bfloat16>;

}  // namespace isotrain
