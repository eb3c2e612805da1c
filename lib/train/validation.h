#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lib/comm/agree.h"
#include "lib/comm/communicator.h"
#include "lib/data/window_reader.h"
#include "lib/model/model.h"
#include "lib/parallel/lanes.h"

namespace isotrain {

struct ValidationLoss {
  double loss = 0;  // mean per token, nats
  std::int64_t tokens = 0;
};

/// Loss over the first `num_windows` windows of a split, shared out among the ranks; summed in the order of the
/// windows, so the same on any number of ranks. Collective. Throws AgreedError if a window cannot be read.
template <class Place, class T>
ValidationLoss validation_loss(Communicator const& comm, Model<Place, T>& model, data::WindowTable& windows,
                               std::int64_t num_windows) {
  auto const& options = model.options();
  std::vector<std::int64_t> counts;
  for (int r = 0; r < comm.size(); ++r) counts.push_back(even_part(num_windows, comm.size(), r).size());
  IndexRange const own = even_part(num_windows, comm.size(), comm.rank());
  std::vector<double> mine(static_cast<std::size_t>(own.size()));
  run_collectively(comm, [&] {
    auto const length = static_cast<std::size_t>(options.sequence);
    std::vector<std::int32_t> tokens(length * static_cast<std::size_t>(options.micro_batch));
    std::vector<std::int32_t> targets(tokens.size());
    for (std::int64_t first = own.begin; first < own.end; first += options.micro_batch) {
      int const samples = static_cast<int>(std::min<std::int64_t>(options.micro_batch, own.end - first));
      for (int i = 0; i < samples; ++i) {
        auto const at = length * static_cast<std::size_t>(i);
        windows.read(first + i, std::span(tokens).subspan(at, length), std::span(targets).subspan(at, length));
      }
      auto const used = length * static_cast<std::size_t>(samples);
      model.evaluate(
          {std::span(tokens).first(used), std::span(targets).first(used), samples},
          std::span(mine).subspan(static_cast<std::size_t>(first - own.begin), static_cast<std::size_t>(samples)));
    }
  });
  std::vector<double> all(static_cast<std::size_t>(num_windows));
  comm.all_gather(std::span<double const>(mine), std::span(all), counts);
  double sum = 0;
  for (double const loss : all) sum += loss;
  std::int64_t const tokens = num_windows * options.sequence;
  return {sum / static_cast<double>(tokens), tokens};
}

}  // namespace isotrain
