#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lib/parallel/schedule.h"
#include "lib/parallel/schedule_slots.h"

/// What is wrong with the schedules of a pipeline, found without knowing how they are made. Each function returns the
/// first fault in words, or nothing.
namespace isotrain::test {

using Schedules = std::vector<std::vector<ScheduleItem>>;

inline bool makes_input_gradient(Action action) {
  return action == Action::backward || action == Action::backward_input;
}
inline bool makes_weight_gradient(Action action) {
  return action == Action::backward || action == Action::backward_weight;
}

inline std::string at(int stage, ScheduleItem const& item) {
  return to_string(item) + " on stage " + std::to_string(stage);
}

/// Between any two stages: what is sent is received, in the same order, activations and gradients each.
inline std::string message_fault(ScheduleSpec const& spec, Schedules const& schedules) {
  using Channel = std::tuple<int, int, bool>;  // from, to, gradients
  std::map<Channel, std::vector<std::pair<int, int>>> sent;
  std::map<Channel, std::vector<std::pair<int, int>>> received;
  for (int stage = 0; stage < spec.stages; ++stage) {
    for (ScheduleItem const& item : schedules[stage]) {
      if (!is_send(item.action) && !is_receive(item.action)) continue;
      int const peer = peer_of(spec, item);
      if (peer == stage) return "a message to itself: " + at(stage, item);
      Message const message = message_of(item);
      auto const what = std::pair(message.to_chunk, message.micro_batch);
      if (is_send(item.action)) sent[{stage, peer, message.is_gradient}].push_back(what);
      if (is_receive(item.action)) received[{peer, stage, message.is_gradient}].push_back(what);
    }
  }
  return sent == received ? "" : "sends and receives differ";
}

/// Every (chunk, micro-batch) is computed once, on its stage, and all that an item needs stands before it in the same
/// stage or is received before it.
inline std::string work_fault(ScheduleSpec const& spec, Schedules const& schedules) {
  for (int stage = 0; stage < spec.stages; ++stage) {
    using Id = std::pair<int, int>;
    std::map<Action, std::set<Id>> done;
    auto const is_here = [&](int chunk) {
      return chunk >= 0 && chunk < spec.num_chunks() && stage_of_chunk(spec, chunk) == stage;
    };
    auto const has = [&](Action action, Id id) { return done[action].count(id) > 0; };
    auto const has_input_gradient = [&](Id id) { return has(Action::backward, id) || has(Action::backward_input, id); };
    for (ScheduleItem const& item : schedules[stage]) {
      int const c = item.chunk;
      int const m = item.micro_batch;
      if (m < 0 || m >= spec.micro_batches || !is_here(c)) return "no such work here: " + at(stage, item);
      if (!done[item.action].insert({c, m}).second) return "twice: " + at(stage, item);
      bool can = true;
      switch (item.action) {
        case Action::receive_activation:
          can = c > 0 && !is_here(c - 1) && !has(Action::forward, {c, m});
          break;
        case Action::forward:
          can = c == 0 || (is_here(c - 1) ? has(Action::forward, {c - 1, m}) : has(Action::receive_activation, {c, m}));
          break;
        case Action::send_activation:
          can = c + 1 < spec.num_chunks() && has(Action::forward, {c, m});
          break;
        case Action::receive_gradient:
          can = c + 1 < spec.num_chunks() && !is_here(c + 1) && !has_input_gradient({c, m});
          break;
        case Action::backward:
        case Action::backward_input:
          can = has(Action::forward, {c, m}) &&
                (c + 1 == spec.num_chunks() ||
                 (is_here(c + 1) ? has_input_gradient({c + 1, m}) : has(Action::receive_gradient, {c, m}))) &&
                !(has(Action::backward, {c, m}) && has(Action::backward_input, {c, m}));
          break;
        case Action::backward_weight:
          can = has(Action::backward_input, {c, m});
          break;
        case Action::send_gradient:
          can = c > 0 && has_input_gradient({c, m});
          break;
      }
      if (!can) return "not possible there: " + at(stage, item);
    }
    for (int chunk : chunks_of_stage(spec, stage)) {
      for (int m = 0; m < spec.micro_batches; ++m) {
        if (!has(Action::forward, {chunk, m})) return "no forward of " + std::to_string(m);
        if (!has(Action::backward, {chunk, m}) && !has(Action::backward_weight, {chunk, m})) {
          return "no weight gradient of " + std::to_string(m);
        }
      }
    }
  }
  return "";
}

/// For each chunk, forwards, input gradients and weight gradients each come in ascending order.
inline std::string order_fault(Schedules const& schedules) {
  for (std::size_t stage = 0; stage < schedules.size(); ++stage) {
    std::map<std::pair<int, int>, int> last;  // by (chunk, which of the three)
    for (ScheduleItem const& item : schedules[stage]) {
      for (auto const& [counts, which] :
           {std::pair(item.action == Action::forward, 0), std::pair(makes_input_gradient(item.action), 1),
            std::pair(makes_weight_gradient(item.action), 2)}) {
        if (!counts) continue;
        auto const [entry, is_first] = last.try_emplace({item.chunk, which}, -1);
        if (item.micro_batch <= entry->second) return "out of order: " + at(static_cast<int>(stage), item);
        entry->second = item.micro_batch;
      }
    }
  }
  return "";
}

/// Executes the schedules where, between two stages, `capacity` messages of a kind may be on their way: before a stage
/// computes what it will send, older ones must have been taken until fewer than that are left.
inline std::string deadlock_fault(ScheduleSpec const& spec, Schedules const& schedules, int capacity) {
  std::map<std::tuple<int, int, bool>, int> under_way;
  std::set<std::tuple<int, int, bool>> sent;  // (chunk, micro-batch, gradient)
  std::vector<std::size_t> next(schedules.size(), 0);
  auto const can = [&](int stage, ScheduleItem const& item) {
    if (is_receive(item.action)) {
      Message const message = message_of(item);
      return sent.count({message.to_chunk, message.micro_batch, message.is_gradient}) > 0;
    }
    bool const is_gradient = makes_input_gradient(item.action);
    if (!is_gradient && item.action != Action::forward) return true;
    int const to_chunk = item.chunk + (is_gradient ? -1 : 1);
    if (to_chunk < 0 || to_chunk == spec.num_chunks()) return true;
    int const to = stage_of_chunk(spec, to_chunk);
    return to == stage || under_way[{stage, to, is_gradient}] < capacity;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (int stage = 0; stage < spec.stages; ++stage) {
      while (next[stage] < schedules[stage].size() && can(stage, schedules[stage][next[stage]])) {
        ScheduleItem const& item = schedules[stage][next[stage]++];
        moves = true;
        if (!is_send(item.action) && !is_receive(item.action)) continue;
        int const peer = peer_of(spec, item);
        Message const message = message_of(item);
        if (is_send(item.action)) {
          ++under_way[{stage, peer, message.is_gradient}];
          sent.insert({message.to_chunk, message.micro_batch, message.is_gradient});
        } else {
          --under_way[{peer, stage, message.is_gradient}];
        }
      }
    }
  }
  for (int stage = 0; stage < spec.stages; ++stage) {
    if (next[stage] < schedules[stage].size()) return "waits for ever: " + at(stage, schedules[stage][next[stage]]);
  }
  return "";
}

/// Executes with `slots` sets of activations and `gradient_slots` gradients for a chunk: nothing is overwritten while
/// it is needed.
inline std::string slot_fault(std::vector<ScheduleItem> const& items, int chunk, int slots, int gradient_slots) {
  std::vector<int> inputs(slots, -1);
  std::vector<int> gradients(gradient_slots, -1);
  auto const put = [](std::vector<int>& buffers, int m) {
    int& place = buffers[m % buffers.size()];
    bool const fits = place == -1 || place == m;
    place = m;
    return fits;
  };
  for (ScheduleItem const& item : items) {
    bool const own = item.chunk == chunk;
    int const m = item.micro_batch;
    bool fits = true;
    if ((own && (item.action == Action::receive_activation || item.action == Action::forward)) ||
        (item.chunk == chunk - 1 && item.action == Action::forward)) {
      fits = put(inputs, m);
    }
    if ((own && (item.action == Action::receive_gradient || makes_input_gradient(item.action))) ||
        (item.chunk == chunk + 1 && makes_input_gradient(item.action))) {
      fits = fits && put(gradients, m);
    }
    if (!fits) return "overwritten by " + to_string(item);
    if (own && makes_weight_gradient(item.action)) {
      inputs[m % slots] = -1;
      gradients[m % gradient_slots] = -1;
    }
  }
  return "";
}

/// The first of all faults.
inline std::string fault_of(ScheduleSpec const& spec, Schedules const& schedules) {
  for (std::string const& fault : {message_fault(spec, schedules), work_fault(spec, schedules), order_fault(schedules),
                                   deadlock_fault(spec, schedules, num_messages_under_way(spec))}) {
    if (!fault.empty()) return fault;
  }
  for (int stage = 0; stage < spec.stages; ++stage) {
    for (int chunk : chunks_of_stage(spec, stage)) {
      auto const& items = schedules[stage];
      std::string const fault = slot_fault(items, chunk, num_slots(items, chunk), num_gradient_slots(items, chunk));
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

}  // namespace isotrain::test
