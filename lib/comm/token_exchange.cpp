#include "lib/comm/token_exchange.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/reduce.h"
#include "lib/base/bfloat16.h"
#include "lib/base/error.h"

namespace isotrain {
namespace {

/// y |= x, bit by bit; no row has bits on both sides.
template <class T>
void or_rows(Cpu const& at, Matrix<T> y, Matrix<T const> x) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  std::int64_t const rows_per_piece = 16384 / std::max<std::int64_t>(1, y.cols);
  at.parallel_for(y.rows, rows_per_piece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      Bits any_left = 0, any_right = 0;
      for (std::int64_t column = 0; column < y.cols; ++column) {
        auto const left = std::bit_cast<Bits>(y(row, column)), right = std::bit_cast<Bits>(x(row, column));
        any_left |= left;
        any_right |= right;
        y(row, column) = std::bit_cast<T>(static_cast<Bits>(left | right));
      }
      expects(any_left == 0 || any_right == 0, "a row that one rank has");
    }
  });
}

}  // namespace

TokenExchange::TokenExchange(Communicator const* group, std::int64_t sequence, int slices)
    : group_(group), split_(sequence, slices, group ? group->size() : 1, group ? group->rank() : 0) {}

int TokenExchange::num_partials() const {
  return static_cast<int>(subtrees(split_.slices_of(split_.rank()), split_.slices()).size());
}

/// The sum of one sample; its rows of a rank are contiguous.
TreeReduction TokenExchange::reduction(std::int64_t width) const {
  std::vector<IndexRange> slices;
  std::vector<std::int64_t> offsets{0};
  for (int rank = 0; rank < split_.ranks(); ++rank) {
    slices.push_back(split_.slices_of(rank));
    offsets.push_back(split_.positions(rank).end * width);
  }
  return {*group_, split_.slices(), slices, std::move(offsets)};
}

std::int64_t TokenExchange::workspace_size(std::int64_t width) const {
  return split_.ranks() == 1 ? 0 : reduction(width).workspace_size();
}

template <class T, class R>
void TokenExchange::reduce_scatter(Cpu const& at, Matrix<T> mine, std::span<Matrix<float> const> partials,
                                   Matrix<R const> residual, std::span<float> workspace, int samples) const {
  expects(static_cast<int>(partials.size()) == num_partials(), "one partial per subtree");
  for (auto const& partial : partials) check_full(partial, mine.cols, samples);
  check_mine(mine, mine.cols, samples);
  if (!residual.empty()) check_mine(residual, mine.cols, samples);

  std::optional<TreeReduction> sum;
  if (split_.ranks() > 1) sum = reduction(mine.cols);
  for (int sample = 0; sample < samples; ++sample) {
    // The tree ends in the own rows of the first partial.
    std::span<float> const total = part_of_full(partials[0], split_.rank(), sample);
    if (sum) {
      std::vector<std::span<float>> wholes;
      for (auto const& partial : partials) {
        wholes.emplace_back(partial.row(sample * split_.sequence()),
                            static_cast<std::size_t>(split_.sequence() * partial.cols));
      }
      sum->reduce_scatter(at, wholes, total, workspace);
    }
    std::span<R const> const added = residual.empty() ? std::span<R const>() : part_of_mine(residual, sample);
    kernels::add_rounded<T, R>(at, part_of_mine(mine, sample), total, added);
  }
}

template <class T>
void TokenExchange::merge(Cpu const& at, Matrix<T> mine, Matrix<T const> candidates, std::span<T> workspace,
                          int samples) const {
  check_full(candidates, mine.cols, samples);
  check_mine(mine, mine.cols, samples);
  for (int sample = 0; sample < samples; ++sample) {
    std::span<T const> const own = part_of_full(candidates, split_.rank(), sample);
    std::copy(own.begin(), own.end(), part_of_mine(mine, sample).begin());
  }
  if (split_.ranks() == 1) return;
  expects(static_cast<std::int64_t>(workspace.size()) >= mine.rows * mine.cols, "a workspace as large as mine");
  Matrix<T> const arriving(workspace.data(), mine.rows, mine.cols);
  for (int distance = 1; distance < split_.ranks(); ++distance) {
    int const from = (split_.rank() + split_.ranks() - distance) % split_.ranks();
    int const to = (split_.rank() + distance) % split_.ranks();
    Messages messages(*group_);
    for (int sample = 0; sample < samples; ++sample) {
      messages.receive(part_of_mine(arriving, sample), from);
      messages.send(part_of_full(candidates, to, sample), to);
    }
    messages.wait();
    or_rows<T>(at, mine, arriving);
  }
}

template void TokenExchange::reduce_scatter(Cpu const&, Matrix<float>, std::span<Matrix<float> const>,
                                            Matrix<float const>, std::span<float>, int) const;
template void TokenExchange::reduce_scatter(Cpu const&, Matrix<float>, std::span<Matrix<float> const>,
                                            Matrix<bfloat16 const>, std::span<float>, int) const;
template void TokenExchange::reduce_scatter(Cpu const&, Matrix<bfloat16>, std::span<Matrix<float> const>,
                                            Matrix<float const>, std::span<float>, int) const;
template void TokenExchange::reduce_scatter(Cpu const&, Matrix<bfloat16>, std::span<Matrix<float> const>,
                                            Matrix<bfloat16 const>, std::span<float>, int) const;
template void TokenExchange::merge(Cpu const&, Matrix<float>, Matrix<float const>, std::span<float>, int) const;
template void TokenExchange::merge(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, std::span<bfloat16>,
                                   int) const;

}  // namespace isotrain
