#include "lib/train/validation.h"

#include <algorithm>

#include "lib/comm/agree.h"
#include "lib/parallel/lanes.h"

namespace isotrain {
namespace {

// Micro-batches that are read at a time.
constexpr std::int64_t passes_at_once = 16;

}  // namespace

ValidationShare::ValidationShare(Communicator const& data, data::WindowTable& windows, std::int64_t num_windows,
                                 ModelOptions const& options)
    : data_(data),
      windows_(windows),
      num_windows_(num_windows),
      options_(options),
      own_(even_part(num_windows, data.size(), data.rank())),
      total_passes_((even_part(num_windows, data.size(), 0).size() + options.micro_batch - 1) / options.micro_batch),
      losses_(static_cast<std::size_t>(own_.size())) {}

IndexRange ValidationShare::windows_of(int pass) const {
  std::int64_t const begin = std::min(own_.end, own_.begin + (first_pass_ + pass) * options_.micro_batch);
  return {begin, std::min(own_.end, begin + options_.micro_batch)};
}

bool ValidationShare::read(Communicator const& all) {
  first_pass_ += passes_;
  passes_ = static_cast<int>(std::min(passes_at_once, total_passes_ - first_pass_));
  if (passes_ <= 0) return false;
  auto const length = static_cast<std::size_t>(options_.sequence);
  run_collectively(all, [&] {
    tokens_.resize(length * static_cast<std::size_t>(passes_ * options_.micro_batch));
    targets_.resize(tokens_.size());
    IndexRange const read{windows_of(0).begin, windows_of(passes_ - 1).end};
    for (std::int64_t window = read.begin; window < read.end; ++window) {
      auto const at = length * static_cast<std::size_t>(window - read.begin);
      windows_.read(window, std::span(tokens_).subspan(at, length), std::span(targets_).subspan(at, length));
    }
  });
  return true;
}

Batch ValidationShare::batch(int pass) const {
  IndexRange const range = windows_of(pass);
  auto const length = static_cast<std::size_t>(options_.sequence);
  auto const begin = length * static_cast<std::size_t>(range.begin - windows_of(0).begin);
  auto const size = length * static_cast<std::size_t>(range.size());
  return {std::span(tokens_).subspan(begin, size), std::span(targets_).subspan(begin, size),
          static_cast<int>(range.size())};
}

std::span<double> ValidationShare::loss(int pass) {
  IndexRange const range = windows_of(pass);
  return std::span(losses_).subspan(static_cast<std::size_t>(range.begin - own_.begin),
                                    static_cast<std::size_t>(range.size()));
}

double ValidationShare::mean() const {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < data_.size(); ++r) counts.push_back(even_part(num_windows_, data_.size(), r).size());
  std::vector<double> all(static_cast<std::size_t>(num_windows_));
  data_.all_gather(std::span<double const>(losses_), std::span(all), std::span<std::int64_t const>(counts));
  double sum = 0;
  for (double const loss : all) sum += loss;
  return sum / static_cast<double>(num_windows_ * options_.sequence);
}

}  // namespace isotrain
