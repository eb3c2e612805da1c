#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "lib/base/matrix.h"
#include "lib/device/cpu.h"

namespace isotrain::kernels {

inline constexpr std::int32_t ignored_target = -100;

/// loss[n] = log(sum_v exp(logit[n,v] - max)) + (max - logit[n,target[n]]), 0 where the target is ignored_target.
///   logits (N,V) fp32, rows contiguous;  loss (N) fp32 out;  target (N) int32, in [0, V) or ignored_target
/// The vocabulary is cut into `slices` runs of ceil(V / slices): exact maximum over all, sum of exponentials per run
/// (16 partial sums by index in the run mod 16 from +0, fixed tree), Tree over the runs that are not empty. A NaN or
/// +infinity among the logits of a row gives a loss of NaN.
void cross_entropy_forward(Cpu const& at, std::span<float> loss, Matrix<float const> logits,
                           std::span<std::int32_t const> target, int slices);

/// The same, and dlogits (N,V) T = exp(logit - max) * (scale / sum), minus `scale` at the target; zero rows where
/// ignored; rounded once to T, float or bfloat16. dlogits may be logits when T is float.
template <class T>
void cross_entropy_forward_backward(Cpu const& at, std::span<float> loss, Matrix<T> dlogits, Matrix<float const> logits,
                                    std::span<std::int32_t const> target, int slices, float scale);

/// The slices [first_slice, end_slice) of a vocabulary, a rank's share of it.
struct VocabularyPart {
  std::int64_t vocabulary = 0;  // V
  int slices = 1;               // runs of ceil(V / slices); the last ones shorter or empty
  int first_slice = 0;
  int end_slice = 1;

  std::int64_t run() const { return (vocabulary + slices - 1) / slices; }
  /// Columns [begin, end) of all V; there may be none.
  std::int64_t begin() const { return std::min(vocabulary, first_slice * run()); }
  std::int64_t end() const { return std::min(vocabulary, end_slice * run()); }
  std::int64_t columns() const { return end() - begin(); }
  int num_slices() const { return end_slice - first_slice; }
};

/// The same bits with the vocabulary cut over ranks, in three calls with an exchange after each of the first two. In
/// all of them: logits (N, part.columns()) fp32, rows contiguous, the part's columns; target (N) int32 as above, in the
/// whole vocabulary; max, target_logit (N) fp32.
///
/// First the part's largest logits, and the target's where it is in the part; -infinity where there is none. To be
/// combined over the ranks by exact maxima (Communicator::max), both in one exchange if they are adjacent. A NaN may
/// get lost here; it shows in the sums.
void cross_entropy_max(Cpu const& at, std::span<float> max, std::span<float> target_logit, Matrix<float const> logits,
                       std::span<std::int32_t const> target, VocabularyPart const& part);

/// Then the sums of exponentials of each of the part's slices, with `max` over all ranks; 0 where ignored, and for
/// slices without columns. To be gathered from all ranks.
///   sums (N, part.num_slices()) fp32 out, any strides: with one slice after the other (row_stride 1) the ranks' parts
///   follow one another in the gathered sums
void cross_entropy_sums(Cpu const& at, Matrix<float> sums, Matrix<float const> logits, std::span<float const> max,
                        std::span<std::int32_t const> target, VocabularyPart const& part);

/// Last the losses, the same on every rank, and the part's columns of the gradient.
///   loss (N) fp32 out;  dlogits (N, part.columns()) T out, or empty if not wanted; may be logits when T is float
///   sums (N, part.slices) fp32, any strides: Tree over those with columns, the others are not read
///   max, target_logit: over all ranks
template <class T>
void cross_entropy_finish(Cpu const& at, std::span<float> loss, Matrix<T> dlogits, Matrix<float const> logits,
                          std::span<float const> max, Matrix<float const> sums, std::span<float const> target_logit,
                          std::span<std::int32_t const> target, VocabularyPart const& part, float scale);

}  // namespace isotrain::kernels
