#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "lib/base/matrix.h"
#include "lib/base/token_split.h"
#include "lib/comm/communicator.h"
#include "lib/comm/tree_sum.h"
#include "lib/device/cpu.h"

namespace isotrain {

/// Moves activations between the two ways a tensor-parallel group holds the tokens of a micro-batch: every rank all
/// positions of all samples (*full*), or every rank its own positions of all samples (*mine*, TokenSplit).
///
/// A full matrix has samples * sequence rows, mine samples * split().rows(), sample by sample; all are dense
/// (row_stride == cols) and of one width. `samples` is the same on all ranks and may be 0. While a call runs, nothing
/// else may be under way on the group with tag 0.
///
/// Source: sequence parallelism, Korthikanti et al., arXiv:2205.05198, section 4.2.2; sums in the order of
/// Tree(slices).
class TokenExchange {
 public:
  /// `group`: the tensor-parallel ranks, by ascending slices; null for one rank. Its size divides `slices`.
  TokenExchange(Communicator const* group, std::int64_t sequence, int slices);

  TokenSplit const& split() const { return split_; }

  /// Sums that a rank brings to reduce_scatter: one for each of subtrees(its slices, slices). That is one if slices /
  /// ranks is a power of two.
  int num_partials() const;

  /// Collective. Puts the rows of all ranks at their places in `full`. With one sample, `mine` may lie at its place in
  /// `full`; it does not overlap it otherwise.
  template <Plain T>
  void gather(Matrix<T> full, Matrix<T const> mine, int samples) const;

  /// Floats of the workspace of reduce_scatter, for any number of samples.
  std::int64_t workspace_size(std::int64_t width) const;

  /// Collective. mine = round(sum over slices + residual) for the own rows: fp32 adds in the order of Tree(slices),
  /// then the residual (own rows; may be empty), rounded once to T. T and R are float or bfloat16.
  ///   partials   num_partials() full matrices, ascending; what they hold in the own rows is garbage afterwards
  ///   mine       may alias residual
  template <class T, class R>
  void reduce_scatter(Cpu const& at, Matrix<T> mine, std::span<Matrix<float> const> partials, Matrix<R const> residual,
                      std::span<float> workspace, int samples) const;

  /// Collective. mine = the own rows of the `candidates` (full) of all ranks, combined by bitwise or: exact where every
  /// row has bits on one rank at most, such as the rows of an embedding whose vocabulary is split. Throws
  /// std::logic_error if two ranks have bits in a row. `workspace` has as many elements as mine.
  template <class T>
  void merge(Cpu const& at, Matrix<T> mine, Matrix<T const> candidates, std::span<T> workspace, int samples) const;

 private:
  template <class T>
  void check_full(Matrix<T> full, std::int64_t width, int samples) const;
  template <class T>
  void check_mine(Matrix<T> mine, std::int64_t width, int samples) const;
  /// The rows of sample `sample` that belong to rank `rank`.
  template <class T>
  std::span<T> part_of_full(Matrix<T> full, int rank, int sample) const;
  template <class T>
  std::span<T> part_of_mine(Matrix<T> mine, int sample) const;
  TreeReduction reduction(std::int64_t width) const;

  Communicator const* group_;
  TokenSplit split_;
};

template <class T>
void TokenExchange::check_full(Matrix<T> full, std::int64_t width, int samples) const {
  expects(full.rows == samples * split_.sequence() && full.cols == width, "all rows of the micro-batch");
  expects(full.row_stride == full.cols && full.col_stride == 1, "a dense matrix");
}

template <class T>
void TokenExchange::check_mine(Matrix<T> mine, std::int64_t width, int samples) const {
  expects(mine.rows == samples * split_.rows() && mine.cols == width, "the own rows of the micro-batch");
  expects(mine.row_stride == mine.cols && mine.col_stride == 1, "a dense matrix");
}

template <class T>
std::span<T> TokenExchange::part_of_full(Matrix<T> full, int rank, int sample) const {
  IndexRange const range = split_.positions(rank);
  return {full.row(sample * split_.sequence() + range.begin), static_cast<std::size_t>(range.size() * full.cols)};
}

template <class T>
std::span<T> TokenExchange::part_of_mine(Matrix<T> mine, int sample) const {
  return {mine.row(sample * split_.rows()), static_cast<std::size_t>(split_.rows() * mine.cols)};
}

template <Plain T>
void TokenExchange::gather(Matrix<T> full, Matrix<T const> mine, int samples) const {
  check_full(full, mine.cols, samples);
  check_mine(mine, mine.cols, samples);
  for (int sample = 0; sample < samples; ++sample) {
    std::span<T> const place = part_of_full(full, split_.rank(), sample);
    std::span<T const> const part = part_of_mine(mine, sample);
    if (place.data() != part.data() && !part.empty()) std::memcpy(place.data(), part.data(), part.size_bytes());
  }
  if (split_.ranks() == 1) return;
  Messages messages(*group_);
  for (int distance = 1; distance < split_.ranks(); ++distance) {
    int const from = (split_.rank() + split_.ranks() - distance) % split_.ranks();
    for (int sample = 0; sample < samples; ++sample) messages.receive(part_of_full(full, from, sample), from);
  }
  for (int distance = 1; distance < split_.ranks(); ++distance) {
    int const to = (split_.rank() + distance) % split_.ranks();
    for (int sample = 0; sample < samples; ++sample) messages.send(part_of_mine(mine, sample), to);
  }
  messages.wait();
}

}  // namespace isotrain
