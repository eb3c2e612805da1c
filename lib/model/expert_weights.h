#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/matrix.h"
#include "lib/model/linear.h"

namespace isotrain {

/// One matrix of each of this rank's experts, as the grouped products want them.
template <class T>
class ExpertWeights {
 public:
  ExpertWeights() = default;
  ExpertWeights(std::vector<Linear<T>> const& experts, int sources)
      : gradients_(experts.size() * static_cast<std::size_t>(sources)) {
    for (auto const& expert : experts) {
      weights_.push_back(expert.weight);
      offsets_.push_back(expert.offset);
    }
  }

  std::span<T const* const> weights() const { return weights_; }
  /// Where their gradients are, by (expert, source); valid until the next call.
  std::span<float* const> gradients(std::span<std::span<float> const> region_of_source) {
    std::size_t i = 0;
    for (auto const offset : offsets_) {
      for (auto const& region : region_of_source) gradients_[i++] = region.data() + offset;
    }
    expects(i == gradients_.size(), "a buffer for each source");
    return gradients_;
  }

 private:
  std::vector<T const*> weights_;
  std::vector<std::int64_t> offsets_;
  std::vector<float*> gradients_;
};

/// Memory for as many rows as happen to come: planned for what is foreseen, and larger once that does not do.
template <class T>
class GrowingRows {
 public:
  GrowingRows() = default;
  explicit GrowingRows(std::span<T> planned) : memory_(planned) {}

  /// What rows(...) of the same size gave before is still there.
  Matrix<T> rows(std::int64_t rows, std::int64_t width) {
    auto const needed = static_cast<std::size_t>(rows * width);
    if (needed > memory_.size()) {
      std::size_t const size = needed + needed / 4;
      grown_ = std::make_unique_for_overwrite<T[]>(size);
      memory_ = {grown_.get(), size};
    }
    return {memory_.data(), rows, width};
  }
  std::span<T> elements(std::int64_t count) { return {rows(count, 1).data, static_cast<std::size_t>(count)}; }

 private:
  std::span<T> memory_;
  std::unique_ptr<T[]> grown_;
};

}  // namespace isotrain
