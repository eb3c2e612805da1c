#pragma once

#include <span>
#include <string>
#include <vector>

/// Pipeline schedules as data: which stage does what in which order, as pure functions. Nothing here communicates.
///
///   P  stages of the pipeline, one after another in the mesh
///   V  chunks per stage; a chunk is one run of consecutive layers, chunks 0..PV-1 are numbered in model order
///   M  micro-batches of a step on one pipeline; some may be empty (a rank with fewer lanes), a schedule does not know
///
/// What every schedule promises: for each chunk, forwards, input gradients and weight gradients each come in ascending
/// order of micro-batches, so that the sums of gradients are the same chain whatever the schedule.
namespace isotrain {

enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zero_bubble, dualpipe_v };

/// "gpipe", "1f1b", "interleaved", "zb-h1" or "dualpipev". Throws UsageError naming the choices.
ScheduleKind parse_schedule(std::string const& name);
std::string name_of(ScheduleKind kind);

struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int stages = 1;          // P >= 1
  int virtual_stages = 1;  // V: interleaved any number >= 1, dualpipe_v 2, the others 1
  int micro_batches = 1;   // M >= 1

  int num_chunks() const { return stages * virtual_stages; }
};

/// Throws UsageError, with numbers that would do, for degrees below 1 and for a V that the kind cannot take. Every kind
/// takes every number of micro-batches; interleaved shortens the bubble from P of them on, dualpipe_v from 2P on.
void check_schedule(ScheduleSpec const& spec);

/// Interleaved: chunk c lies on stage c mod P. dualpipe_v: in a V, chunk c on stage c, back from chunk P on, so that
/// stage 0 has both the first and the last one. Others: chunk c on stage c.
int stage_of_chunk(ScheduleSpec const& spec, int chunk);

/// Ascending, V of them.
std::vector<int> chunks_of_stage(ScheduleSpec const& spec, int stage);

/// `backward` yields the gradients of the chunk's input and of its weights; `backward_input` and `backward_weight` are
/// its two halves. The head's loss belongs to the last chunk's forward, and its gradient needs no message.
enum class Action {
  receive_activation,
  forward,
  send_activation,
  receive_gradient,
  backward,
  backward_input,
  backward_weight,
  send_gradient
};

struct ScheduleItem {
  Action action;
  int chunk;  // on the stage that has the item: a send names the chunk it comes from
  int micro_batch;

  bool operator==(ScheduleItem const&) const = default;
};

/// "backward_input of micro-batch 3 in chunk 2".
std::string to_string(ScheduleItem const& item);

bool is_send(Action action);
bool is_receive(Action action);

/// What a message is known by on both sides: an activation goes up the chunks, a gradient down.
struct Message {
  bool is_gradient;
  int to_chunk;  // the receiver's
  int micro_batch;

  bool operator==(Message const&) const = default;
};

/// Requires a send or a receive.
Message message_of(ScheduleItem const& item);
/// The stage at the other end of a send or a receive.
int peer_of(ScheduleSpec const& spec, ScheduleItem const& item);

/// The items of one stage, in the order in which it executes them.
///
/// A receive blocks until its message is there; a send does not block. Between two stages, messages of one kind are
/// received in the order in which they are sent. Between two chunks of one stage there are no messages: the executor
/// hands the tensor over.
///
/// Requires what check_schedule accepts and 0 <= stage < P.
std::vector<ScheduleItem> make_schedule(ScheduleSpec const& spec, int stage);
/// (P) the items of every stage.
std::vector<std::vector<ScheduleItem>> make_schedules(ScheduleSpec const& spec);

/// How many messages that nobody has received yet there must be room for, for each (from, to, activations or
/// gradients): before a stage computes the next one, it may wait until fewer are under way, and nothing deadlocks.
/// 1; for interleaved with longest rounds of G > P micro-batches (M above P and no multiple of it), G - P + 1.
int num_messages_under_way(ScheduleSpec const& spec);

}  // namespace isotrain
