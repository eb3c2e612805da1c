#pragma once

#include "kernels/cross_entropy.h"
#include "kernels/rmsnorm.h"
#include "lib/model/head.h"
#include "lib/model/memory-inl.h"

namespace isotrain {

/// Rows [begin, begin + count) of a micro-batch whose logits are held at a time.
struct HeadChunk {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Calls body(HeadChunk) for runs of whole samples, or pieces of one sample, of at most `most` rows (at least one
/// sample if samples fit).
template <class Body>
void for_each_head_chunk(Pass const& pass, std::int64_t most, Body body) {
  std::int64_t const chunk = most >= pass.sequence ? most / pass.sequence * pass.sequence : most;
  for (std::int64_t begin = 0, count = 0; begin < pass.all_rows(); begin += count) {
    std::int64_t const end = chunk >= pass.sequence ? pass.all_rows() : (begin / pass.sequence + 1) * pass.sequence;
    count = std::min(chunk, end - begin);
    body(HeadChunk{begin, count});
  }
}

template <class Place, class T>
Head<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options,
                               PartSizes const& sizes) {
  std::int64_t const d = config.hidden_size;
  std::int64_t const chunk = std::min(sizes.all_rows, options.head_rows);
  std::int64_t const run = (config.vocab_size + options.slices - 1) / options.slices;
  std::int64_t const own_slices = options.slices / sizes.tensor_ranks;
  std::int64_t const columns = std::min(config.vocab_size, own_slices * run);
  normed = map.own<T>("workspace", "head: normed input", sizes.rows * d);
  all_normed =
      map.own<T>("workspace", "head: normed input of all tensor ranks", sizes.split() ? sizes.all_rows * d : 0);
  d_normed = map.own<T>("workspace", "head: gradient of normed input", sizes.rows * d);
  rstd = map.own<float>("workspace", "head: norm's rstd", sizes.rows);
  token_loss = map.own<float>("workspace", "head: token losses", sizes.all_rows);
  logits = map.own<float>("workspace", "head: logits", chunk * columns);
  d_logits = map.own<T>("workspace", "head: gradient of logits", std::is_same_v<T, float> ? 0 : chunk * columns);
  maxima = map.own<float>("workspace", "head: largest logits", sizes.split() ? 2 * chunk : 0);
  sums = map.own<float>("workspace", "head: own sums of exponentials", sizes.split() ? own_slices * chunk : 0);
  all_sums = map.own<float>("workspace", "head: sums of exponentials", sizes.split() ? options.slices * chunk : 0);
}

template <class Place, class T>
Head<Place, T>::Head(Setup<Place, T> const& setup, Memory memory)
    : place_(setup.place),
      tensor_(setup.tensor),
      memory_(memory),
      width_(setup.config.hidden_size),
      head_rows_(setup.options.head_rows),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)),
      vocabulary_{.vocabulary = setup.config.vocab_size,
                  .slices = setup.options.slices,
                  .first_slice = static_cast<int>(setup.tensor.split().slices_of(setup.part.tensor_rank()).begin),
                  .end_slice = static_cast<int>(setup.tensor.split().slices_of(setup.part.tensor_rank()).end)},
      norm_(find_norm<T>(setup.shard, setup.weights, "model.norm.weight")),
      output_({find_linear<T>(setup.shard, setup.weights,
                              setup.config.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight")}) {}

template <class Place, class T>
void Head<Place, T>::sum_samples(Pass const& pass, std::span<double> sample_loss) const {
  expects(sample_loss.size() == static_cast<std::size_t>(pass.samples), "one loss for each sample");
  for (std::int64_t s = 0; s < pass.samples; ++s) {
    double sum = 0;
    for (std::int64_t t = 0; t < pass.sequence; ++t) {
      sum += static_cast<double>(memory_.token_loss[static_cast<std::size_t>(s * pass.sequence + t)]);
    }
    sample_loss[static_cast<std::size_t>(s)] = sum;
  }
}

template <class Place, class T>
void Head<Place, T>::logits(Matrix<float> logits, Matrix<T const> x) {
  auto const rows = static_cast<std::size_t>(x.rows);
  Matrix<T> const normed{memory_.normed.data(), x.rows, width_};
  kernels::rmsnorm_forward<T>(place_, normed, memory_.rstd.first(rows), x, norm_.gain, epsilon_);
  project<Place, T>(place_, logits, Matrix<T const>(normed), output_);
}

template <class Place, class T>
void Head<Place, T>::norm(Pass const& pass, Matrix<T const> x) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  kernels::rmsnorm_forward<T>(place_, normed, column(memory_.rstd, pass), x, norm_.gain, epsilon_);
  all_normed_ = tensor_.template gather<T>(pass, memory_.all_normed, normed);
}

template <class Place, class T>
void Head<Place, T>::cross_entropy(Matrix<T> d_logits, std::span<float> loss, Matrix<float const> logits,
                                   std::span<std::int32_t const> targets, float scale) {
  if (tensor_.alone()) {
    if (d_logits.data == nullptr) {
      kernels::cross_entropy_forward(place_, loss, logits, targets, vocabulary_.slices);
    } else {
      kernels::cross_entropy_forward_backward<T>(place_, loss, d_logits, logits, targets, vocabulary_.slices, scale);
    }
    return;
  }
  auto const rows = static_cast<std::size_t>(logits.rows);
  auto const max = memory_.maxima.first(rows), target_logit = memory_.maxima.subspan(rows, rows);
  kernels::cross_entropy_max(place_, max, target_logit, logits, targets, vocabulary_);
  tensor_.group().max(memory_.maxima.first(2 * rows));
  // Slice after slice, so that what the ranks have follows one another.
  std::int64_t const own = vocabulary_.num_slices() * logits.rows;
  kernels::cross_entropy_sums(place_, {memory_.sums.data(), logits.rows, vocabulary_.num_slices(), 1, logits.rows},
                              logits, max, targets, vocabulary_);
  std::vector<std::int64_t> const counts(static_cast<std::size_t>(tensor_.group().size()), own);
  tensor_.group().all_gather(std::span<float const>(used_of(memory_.sums, own)),
                             used_of(memory_.all_sums, vocabulary_.slices * logits.rows),
                             std::span<std::int64_t const>(counts));
  kernels::cross_entropy_finish<T>(place_, loss, d_logits, logits, max,
                                   {memory_.all_sums.data(), logits.rows, vocabulary_.slices, 1, logits.rows},
                                   target_logit, targets, vocabulary_, scale);
}

template <class Place, class T>
void Head<Place, T>::losses(Pass const& pass, Matrix<T const> x, std::span<std::int32_t const> targets,
                            std::span<double> sample_loss) {
  norm(pass, x);
  for_each_head_chunk(pass, head_rows_, [&](HeadChunk chunk) {
    Matrix<float> const chunk_logits{memory_.logits.data(), chunk.count, output_.out()};
    project<Place, T>(place_, chunk_logits, all_normed_.slice_rows(chunk.begin, chunk.count), output_);
    auto const begin = static_cast<std::size_t>(chunk.begin), count = static_cast<std::size_t>(chunk.count);
    cross_entropy({}, memory_.token_loss.subspan(begin, count), chunk_logits, targets.subspan(begin, count), 1);
  });
  sum_samples(pass, sample_loss);
}

template <class Place, class T>
void Head<Place, T>::forward_backward(Pass const& pass, Matrix<T> dx, Gradients const& gradients, Matrix<T const> x,
                                      std::span<std::int32_t const> targets, float token_scale,
                                      std::span<double> sample_loss) {
  norm(pass, x);
  auto const d_normed = rows_of(memory_.d_normed, pass, width_);
  std::vector<typename TensorGroup<Place>::Partial> partials;
  if (!tensor_.alone()) partials = tensor_.partials(pass, width_);
  for_each_head_chunk(pass, head_rows_, [&](HeadChunk chunk) {
    auto const h = all_normed_.slice_rows(chunk.begin, chunk.count);
    Matrix<float> const chunk_logits{memory_.logits.data(), chunk.count, output_.out()};
    Matrix<T> d_logits{memory_.d_logits.data(), chunk.count, output_.out()};
    if constexpr (std::is_same_v<T, float>) d_logits = chunk_logits;
    project<Place, T>(place_, chunk_logits, h, output_);
    auto const begin = static_cast<std::size_t>(chunk.begin), count = static_cast<std::size_t>(chunk.count);
    cross_entropy(d_logits, memory_.token_loss.subspan(begin, count), chunk_logits, targets.subspan(begin, count),
                  token_scale);
    auto const products = sliced_products<T>(d_logits, output_);
    if (tensor_.alone()) {
      kernels::matmul_sliced<T, T>(place_, d_normed.slice_rows(chunk.begin, chunk.count), products, output_.slices());
    }
    for (auto const& partial : partials) {
      kernels::matmul_sliced<T, float>(place_, partial.sum.slice_rows(chunk.begin, chunk.count),
                                       tensor_.template of_slices<T>(products, partial.slices),
                                       static_cast<int>(partial.slices.size()));
    }
    weight_gradient<Place, T>(place_, gradients.sliced, output_, d_logits, h, pass.sequence);
  });
  if (!tensor_.alone()) tensor_.template meet<T>(place_, pass, d_normed, partials);
  gain_gradient<Place, T>(place_, tensor_.split(), pass, gradients, norm_, d_normed, x, column(memory_.rstd, pass));
  kernels::rmsnorm_backward_input<T>(place_, dx, d_normed, x, column(memory_.rstd, pass), norm_.gain);
  sum_samples(pass, sample_loss);
}

}  // namespace isotrain
