#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/accumulate.h"
#include "kernels/cross_entropy.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear.h"
#include "lib/model/tensor_group.h"

namespace isotrain {

/// Final norm, output matrix and cross-entropy. n own rows, N all rows; V is what this rank has of the vocabulary.
///
/// Rows go through in chunks, so that no more than options.head_rows rows of logits are ever held: runs of whole
/// samples, or pieces of one sample that begin at a multiple of the chunk size. That is why both halves of its backward
/// pass run at once.
template <class Place, class T>
class Head {
 public:
  struct Memory {
    std::span<T> normed;          // (n,d)
    std::span<T> all_normed;      // (N,d), where tokens are split
    std::span<T> d_normed;        // (n,d)
    std::span<float> rstd;        // (n)
    std::span<float> token_loss;  // (N)
    std::span<float> logits;      // (chunk,V)
    std::span<T> d_logits;        // (chunk,V); fp32: the logits' own memory
    std::span<float> maxima;      // (2,chunk) largest logits and targets', where the vocabulary is split
    std::span<float> sums;        // (own slices,chunk)
    std::span<float> all_sums;    // (slices,chunk)

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options, PartSizes const& sizes);
  };

  Head(Setup<Place, T> const& setup, Memory memory);

  /// sample_loss (samples) fp64 out: sum of the token losses of each sample, in order. targets (N).
  void losses(Pass const& pass, Matrix<T const> x, std::span<std::int32_t const> targets,
              std::span<double> sample_loss);
  /// The same; dx (n,d) out: token_scale times the gradient of all losses; adds the gradients of its parameters.
  void forward_backward(Pass const& pass, Matrix<T> dx, Gradients const& gradients, Matrix<T const> x,
                        std::span<std::int32_t const> targets, float token_scale, std::span<double> sample_loss);
  /// logits (N,V) fp32, N at most a chunk; alone only.
  void logits(Matrix<float> logits, Matrix<T const> x);

 private:
  void norm(Pass const& pass, Matrix<T const> x);
  /// The losses of a chunk of rows from its logits, and, if `d_logits` is not empty, the gradients of these.
  void cross_entropy(Matrix<T> d_logits, std::span<float> loss, Matrix<float const> logits,
                     std::span<std::int32_t const> targets, float scale);
  void sum_samples(Pass const& pass, std::span<double> sample_loss) const;

  Place place_;
  TensorGroup<Place> const& tensor_;
  Memory memory_;
  std::int64_t width_;
  std::int64_t head_rows_;
  float epsilon_;
  kernels::VocabularyPart vocabulary_;
  Norm norm_;
  Stack<T> output_;
  Matrix<T const> all_normed_;
};

}  // namespace isotrain
