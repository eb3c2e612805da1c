#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/model/linear.h"

namespace isotrain {

/// One matrix of each expert, as the grouped products want them.
template <class T>
class ExpertWeights {
 public:
  ExpertWeights() = default;
  explicit ExpertWeights(std::vector<Linear<T>> const& experts) : shape_(experts.front()) {
    for (auto const& expert : experts) {
      weights_.push_back(expert.weight);
      offsets_.push_back(expert.offset);
    }
    gradients_.resize(experts.size());
  }

  std::span<T const* const> weights() const { return weights_; }
  /// Where their gradients are; valid until the next call.
  std::span<float* const> gradients(std::span<float> flat) {
    for (std::size_t i = 0; i < offsets_.size(); ++i) gradients_[i] = flat.data() + offsets_[i];
    return gradients_;
  }
  std::int64_t out() const { return shape_.out; }
  std::int64_t in() const { return shape_.in; }

 private:
  Linear<T> shape_;
  std::vector<T const*> weights_;
  std::vector<std::int64_t> offsets_;
  std::vector<float*> gradients_;
};

}  // namespace isotrain
