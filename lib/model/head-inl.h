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
  for (std::int64_t begin = 0, count = 0; begin < pass.rows(); begin += count) {
    std::int64_t const end = chunk >= pass.sequence ? pass.rows() : (begin / pass.sequence + 1) * pass.sequence;
    count = std::min(chunk, end - begin);
    body(HeadChunk{begin, count});
  }
}

template <class Place, class T>
Head<Place, T>::Memory::Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options) {
  std::int64_t const rows = options.micro_batch * options.sequence;
  std::int64_t const chunk = std::min(rows, options.head_rows);
  normed = map.own<T>("workspace", "head: normed input", rows * config.hidden_size);
  d_normed = map.own<T>("workspace", "head: gradient of normed input", rows * config.hidden_size);
  rstd = map.own<float>("workspace", "head: norm's rstd", rows);
  token_loss = map.own<float>("workspace", "head: token losses", rows);
  logits = map.own<float>("workspace", "head: logits", chunk * config.vocab_size);
  d_logits =
      map.own<T>("workspace", "head: gradient of logits", std::is_same_v<T, float> ? 0 : chunk * config.vocab_size);
}

template <class Place, class T>
Head<Place, T>::Head(Setup<Place, T> const& setup, Memory memory)
    : place_(setup.place),
      memory_(memory),
      width_(setup.config.hidden_size),
      vocabulary_(setup.config.vocab_size),
      head_rows_(setup.options.head_rows),
      slices_(setup.options.slices),
      epsilon_(static_cast<float>(setup.config.norm_epsilon)),
      norm_(find_norm<T>(setup.parameters, setup.weights, "model.norm.weight")),
      output_(find_linear<T>(setup.parameters, setup.weights,
                             setup.config.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight")) {}

template <class Place, class T>
void Head<Place, T>::sum_samples(Pass const& pass, std::span<double> sample_loss) const {
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
  kernels::matmul<T, float>(place_, logits, normed, output_.matrix().transposed());
}

template <class Place, class T>
void Head<Place, T>::losses(Pass const& pass, Matrix<T const> x, std::span<std::int32_t const> targets,
                            std::span<double> sample_loss) {
  for_each_head_chunk(pass, head_rows_, [&](HeadChunk chunk) {
    Matrix<float> const chunk_logits{memory_.logits.data(), chunk.count, vocabulary_};
    logits(chunk_logits, x.slice_rows(chunk.begin, chunk.count));
    auto const begin = static_cast<std::size_t>(chunk.begin), count = static_cast<std::size_t>(chunk.count);
    kernels::cross_entropy_forward(place_, memory_.token_loss.subspan(begin, count), chunk_logits,
                                   targets.subspan(begin, count), slices_);
  });
  sum_samples(pass, sample_loss);
}

template <class Place, class T>
void Head<Place, T>::forward_backward(Pass const& pass, Matrix<T> dx, std::span<float> gradients, Matrix<T const> x,
                                      std::span<std::int32_t const> targets, float token_scale,
                                      std::span<double> sample_loss) {
  auto const normed = rows_of(memory_.normed, pass, width_);
  auto const d_normed = rows_of(memory_.d_normed, pass, width_);
  auto const rstd = column(memory_.rstd, pass);
  kernels::rmsnorm_forward<T>(place_, normed, rstd, x, norm_.gain, epsilon_);
  for_each_head_chunk(pass, head_rows_, [&](HeadChunk chunk) {
    auto const h = normed.slice_rows(chunk.begin, chunk.count);
    Matrix<float> const chunk_logits{memory_.logits.data(), chunk.count, vocabulary_};
    Matrix<T> d_logits{memory_.d_logits.data(), chunk.count, vocabulary_};
    if constexpr (std::is_same_v<T, float>) d_logits = chunk_logits;
    kernels::matmul<T, float>(place_, chunk_logits, h, output_.matrix().transposed());
    auto const begin = static_cast<std::size_t>(chunk.begin), count = static_cast<std::size_t>(chunk.count);
    kernels::cross_entropy_forward_backward<T>(place_, memory_.token_loss.subspan(begin, count), d_logits, chunk_logits,
                                               targets.subspan(begin, count), slices_, token_scale);
    kernels::matmul<T, T>(place_, d_normed.slice_rows(chunk.begin, chunk.count), d_logits, output_.matrix(),
                          kernels::Accumulate::no, {.slices = slices_});
    kernels::matmul<T, float>(place_, output_.gradient(gradients), d_logits.transposed(), h, kernels::Accumulate::yes,
                              {.slices = 1, .leaf = pass.sequence});
  });
  kernels::rmsnorm_backward_gain<T>(place_, norm_.gradient(gradients), d_normed, x, rstd, pass.sequence, slices_);
  kernels::rmsnorm_backward_input<T>(place_, dx, d_normed, x, rstd, norm_.gain);
  sum_samples(pass, sample_loss);
}

}  // namespace isotrain
