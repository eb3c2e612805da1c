#include "lib/parallel/schedule_time.h"

#include <algorithm>
#include <limits>
#include <string>

#include "lib/base/error.h"

namespace isotrain {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// Since when something is there, for each chunk and micro-batch; `never` until it is known.
class Moments {
 public:
  explicit Moments(ScheduleSpec const& spec)
      : micro_batches_(spec.micro_batches), moments_(spec.num_chunks() * std::size_t(spec.micro_batches), never) {}

  double& operator()(int chunk, int micro_batch) {
    return moments_.at(chunk * std::size_t(micro_batches_) + micro_batch);
  }

 private:
  int micro_batches_;
  std::vector<double> moments_;
};

class Simulation {
 public:
  Simulation(ScheduleSpec const& spec, std::span<ChunkCost const> costs) : spec_(spec), costs_(costs) {
    for (int m = 0; m < spec.micro_batches; ++m) input_(0, m) = 0;
  }

  /// Since when the stage could execute the item; `never` if that is not known yet.
  double possible_from(ScheduleItem const& item);
  double duration(ScheduleItem const& item) const;
  /// Lets others see what the item, which ends at `end`, has brought.
  void finish(ScheduleItem const& item, double end);

 private:
  bool is_local(int chunk, int other) const { return stage_of_chunk(spec_, chunk) == stage_of_chunk(spec_, other); }

  ScheduleSpec const& spec_;
  std::span<ChunkCost const> costs_;
  Moments arriving_input_{spec_};     // as a message that nobody took yet
  Moments arriving_gradient_{spec_};  // the same
  Moments input_{spec_};              // of the chunk, on its stage
  Moments output_{spec_};
  Moments gradient_{spec_};  // of the chunk's output, on its stage
  Moments input_gradient_{spec_};
};

double Simulation::possible_from(ScheduleItem const& item) {
  int const c = item.chunk;
  int const m = item.micro_batch;
  switch (item.action) {
    case Action::receive_activation:
      return arriving_input_(c, m);
    case Action::forward:
      return input_(c, m);
    case Action::send_activation:
      return output_(c, m);
    case Action::receive_gradient:
      return arriving_gradient_(c, m);
    case Action::backward:
    case Action::backward_input:
      return gradient_(c, m);  // comes of the chunk's output, so that is there
    case Action::backward_weight:
    case Action::send_gradient:
      return input_gradient_(c, m);
  }
  throw std::logic_error("an unknown action");
}

double Simulation::duration(ScheduleItem const& item) const {
  ChunkCost const& cost = costs_[item.chunk];
  switch (item.action) {
    case Action::forward:
      return cost.forward_s;
    case Action::backward:
      return cost.backward_input_s + cost.backward_weight_s;
    case Action::backward_input:
      return cost.backward_input_s;
    case Action::backward_weight:
      return cost.backward_weight_s;
    default:
      return 0;
  }
}

void Simulation::finish(ScheduleItem const& item, double end) {
  int const c = item.chunk;
  int const m = item.micro_batch;
  switch (item.action) {
    case Action::receive_activation:
      input_(c, m) = end;
      break;
    case Action::forward:
      output_(c, m) = end;
      if (c + 1 == spec_.num_chunks()) {
        gradient_(c, m) = end;
      } else if (is_local(c, c + 1)) {
        input_(c + 1, m) = end;
      }
      break;
    case Action::send_activation:
      arriving_input_(c + 1, m) = end + costs_[c].transfer_s;
      break;
    case Action::receive_gradient:
      gradient_(c, m) = end;
      break;
    case Action::backward:
    case Action::backward_input:
      input_gradient_(c, m) = end;
      if (c > 0 && is_local(c, c - 1)) gradient_(c - 1, m) = end;
      break;
    case Action::send_gradient:
      arriving_gradient_(c - 1, m) = end + costs_[c].transfer_s;
      break;
    case Action::backward_weight:
      break;
  }
}

/// The most (chunk, micro-batch) pairs between the start of their forward and the end of their weight gradient.
int most_alive(std::vector<ScheduleItem> const& items) {
  int alive = 0;
  int most = 0;
  for (ScheduleItem const& item : items) {
    if (item.action == Action::forward) most = std::max(most, ++alive);
    if (item.action == Action::backward || item.action == Action::backward_weight) --alive;
  }
  return most;
}

}  // namespace

ScheduleTime simulate(ScheduleSpec const& spec, std::span<ChunkCost const> costs,
                      std::vector<std::vector<ScheduleItem>> const& schedules) {
  expects(static_cast<int>(costs.size()) == spec.num_chunks(), "a cost for each chunk");
  expects(static_cast<int>(schedules.size()) == spec.stages, "a schedule for each stage");
  Simulation simulation(spec, costs);
  std::vector<std::vector<TimedItem>> done(spec.stages);
  std::vector<double> clock(spec.stages, 0.0);
  ScheduleTime time;
  time.busy_s.assign(spec.stages, 0.0);

  // What a stage does depends on the others only through moments that never change once known, so any order of visits
  // gives the same times.
  for (bool moves = true; moves;) {
    moves = false;
    for (int stage = 0; stage < spec.stages; ++stage) {
      auto const& items = schedules[stage];
      while (done[stage].size() < items.size()) {
        ScheduleItem const& item = items[done[stage].size()];
        double const possible = simulation.possible_from(item);
        if (possible == never) break;
        double const ready = std::max(clock[stage], possible);
        double const start = is_receive(item.action) ? clock[stage] : ready;
        double const end = ready + simulation.duration(item);
        simulation.finish(item, end);
        time.busy_s[stage] += simulation.duration(item);
        clock[stage] = end;
        done[stage].push_back({stage, item, start, end});
        moves = true;
      }
    }
  }

  std::string waiting;
  for (int stage = 0; stage < spec.stages; ++stage) {
    if (done[stage].size() == schedules[stage].size()) continue;
    waiting += (waiting.empty() ? "stage " : "; stage ") + std::to_string(stage) + " at " +
               to_string(schedules[stage][done[stage].size()]);
  }
  if (!waiting.empty()) throw std::logic_error("the " + name_of(spec.kind) + " schedule cannot go on: " + waiting);

  double busy = 0;
  for (int stage = 0; stage < spec.stages; ++stage) {
    time.makespan_s = std::max(time.makespan_s, clock[stage]);
    busy += time.busy_s[stage];
    time.most_alive.push_back(most_alive(schedules[stage]));
    time.items.insert(time.items.end(), done[stage].begin(), done[stage].end());
  }
  if (time.makespan_s > 0) time.bubble_fraction = 1 - busy / (spec.stages * time.makespan_s);
  return time;
}

ScheduleTime simulate(ScheduleSpec const& spec, std::span<ChunkCost const> costs) {
  return simulate(spec, costs, make_schedules(spec));
}

}  // namespace isotrain
