#pragma once

#include <cstdint>
#include <span>

#include "kernels/accumulate.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"
#include "lib/model/linear.h"

namespace isotrain {

/// Final norm, output matrix and cross-entropy. V: vocabulary.
///
/// Rows go through in chunks, so that no more than options.head_rows rows of logits are ever held: runs of whole
/// samples, or pieces of one sample that begin at a multiple of the chunk size. That is why both halves of its backward
/// pass run at once.
template <class Place, class T>
class Head {
 public:
  struct Memory {
    std::span<T> normed;          // (N,d)
    std::span<T> d_normed;        // (N,d)
    std::span<float> rstd;        // (N)
    std::span<float> token_loss;  // (N)
    std::span<float> logits;      // (chunk,V)
    std::span<T> d_logits;        // (chunk,V); fp32: the logits' own memory

    Memory(BufferMap& map, ModelConfig const& config, ModelOptions const& options);
  };

  Head(Setup<Place, T> const& setup, Memory memory);

  /// sample_loss (samples) fp64 out: sum of the token losses of each sample, in order.
  void losses(Pass const& pass, Matrix<T const> x, std::span<std::int32_t const> targets,
              std::span<double> sample_loss);
  /// The same; dx (N,d) out: token_scale times the gradient of all losses; adds the gradients of its parameters.
  void forward_backward(Pass const& pass, Matrix<T> dx, std::span<float> gradients, Matrix<T const> x,
                        std::span<std::int32_t const> targets, float token_scale, std::span<double> sample_loss);
  /// logits (N,V) fp32, N at most a chunk.
  void logits(Matrix<float> logits, Matrix<T const> x);

 private:
  void sum_samples(Pass const& pass, std::span<double> sample_loss) const;

  Place place_;
  Memory memory_;
  std::int64_t width_;
  std::int64_t vocabulary_;
  std::int64_t head_rows_;
  int slices_;
  float epsilon_;
  Norm norm_;
  Linear<T> output_;
};

}  // namespace isotrain
