#include "lib/parallel/schedule.h"

#include <array>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/nearest.h"
#include "lib/parallel/schedule_order.h"

namespace isotrain {
namespace {

constexpr std::array<std::pair<ScheduleKind, char const*>, 5> schedule_names{
    {{ScheduleKind::gpipe, "gpipe"},
     {ScheduleKind::one_f_one_b, "1f1b"},
     {ScheduleKind::interleaved, "interleaved"},
     {ScheduleKind::zero_bubble, "zb-h1"},
     {ScheduleKind::dualpipe_v, "dualpipev"}}};

constexpr std::array action_names{"receive_activation", "forward",        "send_activation", "receive_gradient",
                                  "backward",           "backward_input", "backward_weight", "send_gradient"};

/// Whether the chunks follow each other in the model and lie on different stages.
bool crosses(ScheduleSpec const& spec, int chunk, int next) {
  return chunk >= 0 && next < spec.num_chunks() && stage_of_chunk(spec, chunk) != stage_of_chunk(spec, next);
}

}  // namespace

ScheduleKind parse_schedule(std::string const& name) {
  std::vector<std::string> names;
  std::string all;
  for (auto const& [kind, known] : schedule_names) {
    if (name == known) return kind;
    names.emplace_back(known);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  auto const near = nearest(name, names);
  throw UsageError("no pipeline schedule is called '" + name + "'", "there are " + all,
                   near ? "did you mean " + *near + "?" : "");
}

std::string name_of(ScheduleKind kind) {
  for (auto const& [known, name] : schedule_names) {
    if (kind == known) return name;
  }
  throw std::logic_error("an unknown kind of schedule");
}

void check_schedule(ScheduleSpec const& spec) {
  std::string const name = name_of(spec.kind);
  if (spec.stages < 1) {
    throw UsageError("a pipeline of " + std::to_string(spec.stages) + " stages is impossible",
                     "the layers must lie somewhere", "use 1 or more");
  }
  if (spec.micro_batches < 1) {
    throw UsageError("a pipeline cannot run " + std::to_string(spec.micro_batches) + " micro-batches",
                     "a step needs at least one", "raise the global batch or lower the micro-batch");
  }
  if (spec.kind == ScheduleKind::interleaved) {
    if (spec.virtual_stages >= 1) return;
    throw UsageError("schedule interleaved cannot give a stage " + std::to_string(spec.virtual_stages) + " chunks",
                     "each stage needs layers", "use 1 or more; 2 halves the bubble of 1f1b");
  }
  int const wanted = spec.kind == ScheduleKind::dualpipe_v ? 2 : 1;
  if (spec.virtual_stages == wanted) return;
  throw UsageError("schedule " + name + " cannot give a stage " + std::to_string(spec.virtual_stages) + " chunks",
                   wanted == 2 ? "each stage has one chunk of each arm of the V" : "each stage has one run of layers",
                   "use " + std::to_string(wanted) + " with it, or schedule interleaved, which takes any number");
}

int stage_of_chunk(ScheduleSpec const& spec, int chunk) {
  expects(0 <= chunk && chunk < spec.num_chunks(), "a chunk of the model");
  if (spec.kind == ScheduleKind::interleaved) return chunk % spec.stages;
  return chunk < spec.stages ? chunk : 2 * spec.stages - 1 - chunk;
}

std::vector<int> chunks_of_stage(ScheduleSpec const& spec, int stage) {
  expects(0 <= stage && stage < spec.stages, "a stage of the pipeline");
  std::vector<int> chunks;
  for (int chunk = 0; chunk < spec.num_chunks(); ++chunk) {
    if (stage_of_chunk(spec, chunk) == stage) chunks.push_back(chunk);
  }
  return chunks;
}

std::string to_string(ScheduleItem const& item) {
  return action_names[static_cast<std::size_t>(item.action)] + std::string(" of micro-batch ") +
         std::to_string(item.micro_batch) + " in chunk " + std::to_string(item.chunk);
}

bool is_send(Action action) {
  return action == Action::send_activation || action == Action::send_gradient;
}

bool is_receive(Action action) {
  return action == Action::receive_activation || action == Action::receive_gradient;
}

Message message_of(ScheduleItem const& item) {
  switch (item.action) {
    case Action::send_activation:
      return {false, item.chunk + 1, item.micro_batch};
    case Action::receive_activation:
      return {false, item.chunk, item.micro_batch};
    case Action::send_gradient:
      return {true, item.chunk - 1, item.micro_batch};
    case Action::receive_gradient:
      return {true, item.chunk, item.micro_batch};
    default:
      throw std::logic_error(to_string(item) + " is not a message");
  }
}

int peer_of(ScheduleSpec const& spec, ScheduleItem const& item) {
  Message const message = message_of(item);
  if (is_send(item.action)) return stage_of_chunk(spec, message.to_chunk);
  return stage_of_chunk(spec, message.to_chunk + (message.is_gradient ? 1 : -1));
}

std::vector<ScheduleItem> make_schedule(ScheduleSpec const& spec, int stage) {
  expects(0 <= stage && stage < spec.stages, "a stage of the pipeline");
  std::vector<ScheduleItem> items;
  for (auto const& [action, chunk, m] : compute_order(spec, stage)) {
    // Leaving out every item of some micro-batches keeps the order of the others, so no wait for another stage is
    // added.
    if (m >= spec.micro_batches) continue;
    bool const from_below = crosses(spec, chunk - 1, chunk);
    bool const to_above = crosses(spec, chunk, chunk + 1);
    bool const is_forward = action == Action::forward;
    bool const is_backward = action == Action::backward || action == Action::backward_input;
    if (is_forward && from_below) items.push_back({Action::receive_activation, chunk, m});
    if (is_backward && to_above) items.push_back({Action::receive_gradient, chunk, m});
    items.push_back({action, chunk, m});
    if (is_forward && to_above) items.push_back({Action::send_activation, chunk, m});
    if (is_backward && from_below) items.push_back({Action::send_gradient, chunk, m});
  }
  return items;
}

std::vector<std::vector<ScheduleItem>> make_schedules(ScheduleSpec const& spec) {
  std::vector<std::vector<ScheduleItem>> schedules;
  for (int stage = 0; stage < spec.stages; ++stage) schedules.push_back(make_schedule(spec, stage));
  return schedules;
}

}  // namespace isotrain
