#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/matrix.h"
#include "lib/base/tree.h"
#include "lib/comm/communicator.h"
#include "lib/device/cpu.h"

/// Expert parallelism: the routed experts are shared out over a group of ranks, and the routed rows of every rank
/// travel to the owners of their experts and back. Dropless: however many rows come, they are all taken.
///
/// A *source* is one data-parallel rank, with the samples of its micro-batch; the positions of its samples are split,
/// ascending, over its tensor ranks. Rank in the group = source * tensor_ranks + tensor rank.
namespace isotrain {

/// What goes where in one turn of an expert group, as seen by one rank. *Routed* rows are this rank's own, sorted by
/// (expert, sample, position); *received* rows are those of all ranks for this rank's experts, in canonical order
/// (expert, source, sample, position). That is the order that one rank with all tokens would have, so what is
/// computed of them does not depend on the layout.
class Route {
 public:
  std::int64_t routed_rows() const { return routed_begin_.back(); }
  std::int64_t received_rows() const { return offsets_.back(); }

  /// The most samples that a source has in this turn.
  int samples() const { return samples_; }
  /// Received rows of (own expert e, source, sample) are [offsets[i], offsets[i + 1]), i = (e * sources + source) *
  /// samples() + sample; own experts * sources * samples() + 1 entries. A source with fewer samples has empty runs.
  std::span<std::int64_t const> offsets() const { return offsets_; }
  /// Received rows of own expert e are [expert_offsets[e], expert_offsets[e + 1]); own experts + 1 entries.
  std::span<std::int64_t const> expert_offsets() const { return expert_offsets_; }

  /// Routed rows whose expert `rank` of the group owns; received rows that come from it.
  std::int64_t rows_to(int rank) const { return routed_range(rank).size(); }
  std::int64_t rows_from(int rank) const;

  /// Rows of the workspace of dispatch and collect: those received from other ranks.
  std::int64_t workspace_rows() const { return block_begin_.back(); }

 private:
  friend class ExpertExchange;
  Route() = default;

  /// The routed rows for a rank; the rows of the workspace for those from it.
  IndexRange routed_range(int rank) const;
  IndexRange block_range(int rank) const;

  /// Received rows [begin, end) that follow one another in the message of a rank, too.
  using Runs = std::vector<IndexRange>;

  int samples_ = 0;
  std::vector<std::int64_t> offsets_{0};
  std::vector<std::int64_t> expert_offsets_{0};
  std::vector<std::int64_t> routed_begin_{0};  // of the rows for each rank; size + 1 entries
  std::vector<std::int64_t> block_begin_{0};   // of the rows from each rank in the workspace; size + 1 entries
  std::vector<Runs> runs_;                     // from each rank, in the order of its message
};

/// Makes routes and sends rows along them. Everything is collective over the group. While a call runs, nothing else may
/// be under way on the group with tag 0.
class ExpertExchange {
 public:
  /// `group`: null for one rank; its size is a multiple of `tensor_ranks`. `max_samples`: the most that any source has
  /// in a turn. All arguments but the group's rank are the same on all ranks.
  ExpertExchange(Communicator const* group, int tensor_ranks, int experts, int max_samples);

  int sources() const { return size_ / tensor_ranks_; }
  /// The experts of a rank of the group; this one's. Differ by one at most, larger parts first; may be empty.
  IndexRange experts_of(int rank) const;
  IndexRange experts() const { return experts_of(rank_); }

  /// Exchanges the counts of routed rows. `offsets` as kernels::permutation_sort gives them: routed rows of (expert,
  /// sample) are [offsets[expert * samples + sample], ...), experts * samples + 1 entries. `samples` may differ between
  /// sources and be 0; the tensor ranks of a source agree, or all ranks throw std::logic_error.
  Route route(std::span<std::int64_t const> offsets, int samples) const;

  /// Rows to the owners of their experts.
  ///   received   (route.received_rows(), width) out, in canonical order
  ///   routed     (route.routed_rows(), width)
  ///   workspace  at least route.workspace_rows() * width elements
  /// All dense (row_stride == cols), none overlaps another. With one rank, received is a copy of routed: the caller
  /// may use routed as it is and spare the call.
  template <Plain T>
  void dispatch(Cpu const& at, Route const& route, Matrix<T> received, Matrix<T const> routed,
                std::span<T> workspace) const {
    check(route, received, routed, static_cast<std::int64_t>(workspace.size()));
    dispatch_bytes(at, route, to_bytes(received.data), to_bytes(routed.data), to_bytes(workspace.data()),
                   received.cols * static_cast<std::int64_t>(sizeof(T)));
  }

  /// The reverse of dispatch: every received row to the place it came from.
  template <Plain T>
  void collect(Cpu const& at, Route const& route, Matrix<T> routed, Matrix<T const> received,
               std::span<T> workspace) const {
    check(route, received, routed, static_cast<std::int64_t>(workspace.size()));
    collect_bytes(at, route, to_bytes(routed.data), to_bytes(received.data), to_bytes(workspace.data()),
                  received.cols * static_cast<std::int64_t>(sizeof(T)));
  }

 private:
  template <class T>
  static std::byte* to_bytes(T* data) {
    return reinterpret_cast<std::byte*>(data);
  }
  template <class T>
  static std::byte const* to_bytes(T const* data) {
    return reinterpret_cast<std::byte const*>(data);
  }
  template <class Received, class Routed>
  static void check(Route const& route, Matrix<Received> received, Matrix<Routed> routed, std::int64_t workspace) {
    expects(received.rows == route.received_rows() && routed.rows == route.routed_rows(), "as many rows as the route");
    expects(received.cols == routed.cols, "rows of one width");
    expects(received.row_stride == received.cols && routed.row_stride == routed.cols, "dense matrices");
    expects(received.col_stride == 1 && routed.col_stride == 1, "dense matrices");
    expects(workspace >= route.workspace_rows() * received.cols, "a workspace of workspace_rows()");
  }
  void dispatch_bytes(Cpu const& at, Route const& route, std::byte* received, std::byte const* routed,
                      std::byte* workspace, std::int64_t row_bytes) const;
  void collect_bytes(Cpu const& at, Route const& route, std::byte* routed, std::byte const* received,
                     std::byte* workspace, std::int64_t row_bytes) const;

  Communicator const* group_;
  int size_;
  int rank_;
  int tensor_ranks_;
  int experts_;
  int max_samples_;
};

}  // namespace isotrain
