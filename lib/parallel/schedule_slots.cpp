#include "lib/parallel/schedule_slots.h"

#include <algorithm>
#include <set>

#include "lib/base/error.h"

namespace isotrain {
namespace {

bool is_backward(Action action) {
  return action == Action::backward || action == Action::backward_input;
}
bool ends_weight(Action action) {
  return action == Action::backward || action == Action::backward_weight;
}

/// The most micro-batches that are alive at once, where one lives from the first item for which `begins` holds until
/// its weight gradient is done.
template <class Begins>
int most_alive(std::span<ScheduleItem const> items, int chunk, Begins begins) {
  std::set<int> alive;
  std::size_t most = 0;
  bool has_chunk = false;
  for (ScheduleItem const& item : items) {
    has_chunk |= item.chunk == chunk;
    if (begins(item)) alive.insert(item.micro_batch);
    most = std::max(most, alive.size());
    if (item.chunk == chunk && ends_weight(item.action)) alive.erase(item.micro_batch);
  }
  expects(has_chunk, "a chunk of the stage");
  return static_cast<int>(most);
}

}  // namespace

int num_slots(std::span<ScheduleItem const> items, int chunk) {
  return most_alive(items, chunk, [&](ScheduleItem const& item) {
    if (item.chunk == chunk - 1) return item.action == Action::forward;
    return item.chunk == chunk && (item.action == Action::receive_activation || item.action == Action::forward);
  });
}

int num_gradient_slots(std::span<ScheduleItem const> items, int chunk) {
  return most_alive(items, chunk, [&](ScheduleItem const& item) {
    if (item.chunk == chunk + 1) return is_backward(item.action);
    return item.chunk == chunk && (item.action == Action::receive_gradient || is_backward(item.action));
  });
}

}  // namespace isotrain
