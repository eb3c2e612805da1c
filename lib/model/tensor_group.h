#pragma once

#include <algorithm>
#include <vector>

#include "kernels/matmul.h"
#include "lib/comm/token_exchange.h"
#include "lib/model/block.h"
#include "lib/model/buffer_map.h"

namespace isotrain {

/// The tensor-parallel group as the blocks see it: tokens are split over its ranks between the blocks and met in full
/// inside them, where the ranks split heads, feed-forward width or vocabulary instead (sequence parallelism,
/// Korthikanti et al., arXiv:2205.05198). Alone it does nothing.
template <class Place>
class TensorGroup {
 public:
  struct Memory {
    std::span<float> partial;   // (partials, N, width)
    std::span<float> incoming;  // of the exchange

    Memory() = default;
    /// `width`: of the widest sum.
    Memory(BufferMap& map, TokenExchange const& exchange, std::int64_t all_rows, std::int64_t width) {
      if (exchange.split().ranks() == 1) return;
      partial = map.own<float>("communication", "partial sums over slices", exchange.num_partials() * all_rows * width);
      incoming = map.own<float>("communication", "partial sums of other tensor ranks", exchange.workspace_size(width));
    }
  };

  TensorGroup(Communicator const* group, std::int64_t sequence, int slices, Memory memory)
      : group_(group), exchange_(group, sequence, slices), memory_(memory) {}
  TensorGroup(TensorGroup const&) = delete;
  TensorGroup& operator=(TensorGroup const&) = delete;

  bool alone() const { return split().ranks() == 1; }
  Communicator const& group() const { return *group_; }
  TokenExchange const& exchange() const { return exchange_; }
  TokenSplit const& split() const { return exchange_.split(); }

  /// All rows (N,width), in `memory`; alone: `mine` as it is.
  template <class T>
  Matrix<T const> gather(Pass const& pass, std::span<T> memory, Matrix<T const> mine) const {
    if (alone()) return mine;
    Matrix<T> const all{memory.data(), pass.all_rows(), mine.cols};
    exchange_.template gather<T>(all, mine, pass.samples);
    return all;
  }

  /// What this rank has of a sum over slices: a subtree, over some of its own slices, numbered from its first.
  struct Partial {
    Matrix<float> sum;  // (N,width)
    IndexRange slices;
  };
  /// The partial sums to be formed, then met. Not to be called alone.
  std::vector<Partial> partials(Pass const& pass, std::int64_t width) const {
    std::vector<Partial> list;
    std::int64_t const own = split().num_slices(), first = own * split().rank();
    auto const size = pass.all_rows() * width;
    for (auto const& node : subtrees({first, first + own}, split().slices())) {
      std::int64_t const begin = node.index << node.level;
      std::int64_t const end = std::min<std::int64_t>(begin + (std::int64_t{1} << node.level), split().slices());
      float* const memory = memory_.partial.data() + static_cast<std::int64_t>(list.size()) * size;
      list.push_back({{memory, pass.all_rows(), width}, {begin - first, end - first}});
    }
    return list;
  }
  /// mine (n,width) = round(Tree over all slices [+ residual]).
  template <class Out>
  void meet(Place const& at, Pass const& pass, Matrix<Out> mine, std::vector<Partial> const& partials,
            Matrix<Out const> residual = {}) const {
    std::vector<Matrix<float>> sums;
    for (auto const& partial : partials) sums.push_back(partial.sum);
    exchange_.template reduce_scatter<Out, Out>(at, mine, sums, residual, memory_.incoming, pass.samples);
  }

  /// mine (n,width) = round(Tree over all slices(products of this rank's slices, of all rows) [+ residual]).
  template <class T, class Out>
  void sum_slices(Place const& at, Pass const& pass, Matrix<Out> mine, std::vector<kernels::Product<T>> const& products,
                  Matrix<Out const> residual = {}) const {
    if (alone()) {
      kernels::matmul_sliced<T, Out>(at, mine, products, split().num_slices(), residual);
      return;
    }
    auto const partials = this->partials(pass, mine.cols);
    for (auto const& partial : partials) {
      kernels::matmul_sliced<T, float>(at, partial.sum, of_slices<T>(products, partial.slices),
                                       static_cast<int>(partial.slices.size()));
    }
    meet<Out>(at, pass, mine, partials, residual);
  }

  /// The products of some of the own slices.
  template <class T>
  std::span<kernels::Product<T> const> of_slices(std::vector<kernels::Product<T>> const& products,
                                                 IndexRange slices) const {
    std::size_t const per_slice = products.size() / static_cast<std::size_t>(split().num_slices());
    return std::span(products).subspan(static_cast<std::size_t>(slices.begin) * per_slice,
                                       static_cast<std::size_t>(slices.size()) * per_slice);
  }

 private:
  Communicator const* group_;
  TokenExchange exchange_;
  Memory memory_;
};

}  // namespace isotrain
