#include "lib/train/step_hashes.h"

#include <algorithm>
#include <bit>

#include "kernels/reduce.h"

namespace isotrain {
namespace {

/// Calls body(parameter, part of `own`, first element in the flat space) for all own elements that are no gaps.
template <class Body>
void for_each_own_piece(RankPlan const& rank, std::span<float const> own, Body body) {
  auto const& pieces = rank.table().pieces();
  std::int64_t done = 0;
  for (FlatRange const& run : rank.own()) {
    auto piece =
        std::partition_point(pieces.begin(), pieces.end(), [&](Piece const& p) { return p.end() <= run.begin; });
    for (; piece != pieces.end() && piece->offset < run.end; ++piece) {
      std::int64_t const begin = std::max(run.begin, piece->offset);
      std::int64_t const end = std::min(run.end, piece->offset + piece->size());
      if (begin >= end) continue;
      body(piece->parameter,
           own.subspan(static_cast<std::size_t>(done + begin - run.begin), static_cast<std::size_t>(end - begin)),
           begin);
    }
    done += run.size();
  }
}

}  // namespace

LedgerHeader ledger_header(RankPlan const& rank) {
  LedgerHeader header;
  header.layers.push_back("embedding");
  for (int layer = 0; layer < rank.train().config.num_layers; ++layer) {
    header.layers.push_back("layer " + std::to_string(layer));
  }
  header.layers.push_back("head");
  for (auto const& parameter : rank.table().all()) header.parameters.push_back(parameter.name);
  return header;
}

std::vector<std::uint64_t> hash_by_parameter(RankPlan const& rank, Cpu const& at, std::span<float const> own) {
  std::vector<std::uint64_t> hashes(rank.table().all().size());
  for_each_own_piece(rank, own, [&](std::size_t parameter, std::span<float const> part, std::int64_t begin) {
    hashes[parameter] += kernels::hash(at, part, static_cast<std::uint64_t>(begin));
  });
  rank.mesh().world().sum(std::span(hashes));
  return hashes;
}

std::vector<std::string> find_unused(RankPlan const& rank, std::span<float const> gradient) {
  auto const& parameters = rank.table().all();
  std::vector<int> used(parameters.size());
  for_each_own_piece(rank, gradient, [&](std::size_t parameter, std::span<float const> part, std::int64_t) {
    if (std::ranges::any_of(part, [](float x) { return x != 0; })) used[parameter] = 1;
  });
  rank.mesh().world().max(std::span(used));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i] == 0 && parameters[i].expert < 0) names.push_back(parameters[i].name);
  }
  return names;
}

StepHashes::StepHashes(RankPlan const& rank, Cpu at)
    : rank_(rank),
      at_(at),
      split_(rank.train().model.sequence, rank.train().model.slices, rank.mesh().tensor().size(),
             rank.mesh().tensor().rank()),
      activation_(static_cast<std::size_t>(rank.train().config.num_layers) + 2),
      gradient_(activation_.size()) {}

template <class T>
std::uint64_t StepHashes::hash_rows(std::int64_t first_sample, Matrix<T const> rows) const {
  std::uint64_t hash = 0;
  if (split_.rows() == 0) return hash;
  for (std::int64_t sample = 0; sample < rows.rows / split_.rows(); ++sample) {
    auto const own = rows.slice_rows(sample * split_.rows(), split_.rows());
    std::int64_t const token = (first_sample_ + first_sample + sample) * split_.sequence() + split_.positions().begin;
    hash += kernels::hash(at_, std::span<T const>(own.data, static_cast<std::size_t>(own.rows * own.cols)),
                          static_cast<std::uint64_t>(token * own.cols));
  }
  return hash;
}

template <class T>
void StepHashes::watch(ModelPipeline<T>& pipeline) {
  auto const noted_in = [this](std::vector<std::uint64_t>& hashes) {
    return [this, &hashes](int layer, std::int64_t first_sample, Matrix<T const> rows) {
      hashes[static_cast<std::size_t>(layer + 1)] += hash_rows(first_sample, rows);
    };
  };
  pipeline.observe(noted_in(activation_), noted_in(gradient_));
}

void StepHashes::begin(std::int64_t lane_samples) {
  first_sample_ = rank_.lanes().own().begin * lane_samples;
  std::ranges::fill(activation_, 0);
  std::ranges::fill(gradient_, 0);
}

LedgerStep StepHashes::finish(std::span<double const> sample_loss) {
  // What the head hands on are the losses, the same on all ranks of a lane.
  auto const& at = rank_.mesh().coordinates();
  for (std::size_t i = 0; i < sample_loss.size() && at.tensor == 0 && at.pipeline == 0; ++i) {
    auto const bits = std::bit_cast<std::uint64_t>(sample_loss[i]);
    std::uint64_t const position = 2 * (static_cast<std::uint64_t>(first_sample_) + i);
    activation_.back() += kernels::hash_mix(position, static_cast<std::uint32_t>(bits)) +
                          kernels::hash_mix(position + 1, static_cast<std::uint32_t>(bits >> 32));
  }
  rank_.mesh().world().sum(std::span(activation_));
  rank_.mesh().world().sum(std::span(gradient_));
  LedgerStep step;
  step.activation = activation_;
  step.activation_gradient = gradient_;
  return step;
}

template void StepHashes::watch(ModelPipeline<float>&);
template void StepHashes::watch(ModelPipeline<bfloat16>&);

}  // namespace isotrain
