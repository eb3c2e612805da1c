#include "lib/parallel/schedule_order.h"

#include <algorithm>
#include <deque>

#include "lib/base/error.h"
#include "lib/parallel/lanes.h"

namespace isotrain {
namespace {

using Order = std::vector<ScheduleItem>;

/// `ahead` forwards, then one backward after each further forward, then the backwards that are left.
Order one_each_after(int ahead, Order const& forwards, Order const& backwards) {
  std::size_t const lead = std::min<std::size_t>(ahead, forwards.size());
  Order order(forwards.begin(), forwards.begin() + lead);
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (i + lead < forwards.size()) order.push_back(forwards[i + lead]);
    order.push_back(backwards[i]);
  }
  return order;
}

/// The `chunks` forwards of a micro-batch, then its backwards, then the next.
Order one_micro_batch_at_a_time(Order const& forwards, Order const& backwards, int chunks) {
  Order order;
  for (std::size_t i = 0; i < forwards.size(); i += static_cast<std::size_t>(chunks)) {
    auto const first = static_cast<std::ptrdiff_t>(i);
    order.insert(order.end(), forwards.begin() + first, forwards.begin() + first + chunks);
    order.insert(order.end(), backwards.begin() + first, backwards.begin() + first + chunks);
  }
  return order;
}

/// One item for each of M micro-batches, ascending.
Order all_micro_batches(Action action, int chunk, int num_micro_batches) {
  Order order;
  for (int m = 0; m < num_micro_batches; ++m) order.push_back({action, chunk, m});
  return order;
}

/// All forwards, then all backwards, ascending as well, for the order of the sums.
/// Source: Huang et al. (arXiv:1811.06965).
Order gpipe(ScheduleSpec const& spec, int stage) {
  int const M = spec.micro_batches;
  return one_each_after(M, all_micro_batches(Action::forward, stage, M), all_micro_batches(Action::backward, stage, M));
}

/// A stage runs ahead by as many forwards as there are stages above it. Stage s holds min(M, P - s) micro-batches.
/// Source: Narayanan et al. (arXiv:2104.04473), section 2.2.1.
Order one_f_one_b(ScheduleSpec const& spec, int stage) {
  int const M = spec.micro_batches;
  return one_each_after(spec.stages - 1 - stage, all_micro_batches(Action::forward, stage, M),
                        all_micro_batches(Action::backward, stage, M));
}

/// The rounds of the interleaved schedule: each micro-batch of a round goes through a chunk before the first one goes
/// through the stage's next chunk. None is shorter than P, so that nobody waits for a micro-batch to come round; they
/// are P long if P divides M, else longer, as evenly as can be. Fewer than P micro-batches are taken out of a round of
/// P.
std::vector<IndexRange> interleaved_rounds(ScheduleSpec const& spec) {
  int const M = std::max(spec.micro_batches, spec.stages);
  int const num_rounds = M / spec.stages;
  std::vector<IndexRange> rounds;
  for (int r = 0; r < num_rounds; ++r) rounds.push_back(even_part(M, num_rounds, r));
  return rounds;
}

/// Forwards go through a stage's chunks from its first one, backwards from its last. A stage runs ahead until the first
/// gradient can have come back, so with longest rounds of G micro-batches stage s holds up to
/// 2(P - 1 - s) + (V - 1)G + 1 micro-batches, each in one of its chunks.
///
/// Why it never deadlocks: give forward i of stage s the time i + s, and backward i the time i + P - 1 - s + D with
/// D = (V - 1)G + P. Each item is later than what it needs, since rounds are not shorter than P, and running ahead by
/// P - 2 - 2s + D is just the order of these times.
///
/// One stage runs ahead of nobody: there each micro-batch comes back before the next starts, and a chunk holds one.
///
/// Source: Narayanan et al. (arXiv:2104.04473), section 2.2.2, for M a multiple of P.
Order interleaved(ScheduleSpec const& spec, int stage) {
  int const P = spec.stages;
  int const V = spec.virtual_stages;
  if (V == 1) return one_f_one_b(spec, stage);
  auto const rounds = interleaved_rounds(spec);
  Order forwards;
  Order backwards;
  for (IndexRange const& round : rounds) {
    for (int v = 0; v < V; ++v) {
      for (int m = round.begin; m < round.end; ++m) {
        forwards.push_back({Action::forward, v * P + stage, m});
        backwards.push_back({Action::backward, (V - 1 - v) * P + stage, m});
      }
    }
  }
  if (P == 1) return one_micro_batch_at_a_time(forwards, backwards, V);
  int const longest = rounds.front().size();
  return one_each_after(2 * (P - 1 - stage) + (V - 1) * longest, forwards, backwards);
}

/// ZB-H1: 1F1B whose weight gradients follow on stage s by s micro-batches later, so that every stage holds up to P
/// micro-batches, gradients go down sooner at first, and there is work left to do at the end, when they come rarely.
///
/// Source: Qi et al. (arXiv:2401.10241), section 2.
Order zero_bubble(ScheduleSpec const& spec, int stage) {
  int const M = spec.micro_batches;
  Order order;
  for (ScheduleItem const& item : one_each_after(spec.stages - 1 - stage, all_micro_batches(Action::forward, stage, M),
                                                 all_micro_batches(Action::backward_input, stage, M))) {
    order.push_back(item);
    if (item.action == Action::backward_input && item.micro_batch >= stage) {
      order.push_back({Action::backward_weight, stage, item.micro_batch - stage});
    }
  }
  for (int m = std::max(0, M - stage); m < M; ++m) order.push_back({Action::backward_weight, stage, m});
  return order;
}

/// The items of one stage of a V, its two chunks called arm 0 (going down) and arm 1 (coming back). Micro-batches are
/// counted, so that each arm's forwards and backwards come in ascending order; deferred weight gradients wait in line.
class VOrder {
 public:
  VOrder(int stage, int num_stages) : chunks_{stage, 2 * num_stages - 1 - stage} {}

  void forward(int arm) { order_.push_back({Action::forward, chunks_[arm], num_forwards_[arm]++}); }
  void backward(int arm) { order_.push_back({Action::backward, chunks_[arm], num_backwards_[arm]++}); }
  void backward_input(int arm) {
    deferred_.push_back({Action::backward_weight, chunks_[arm], num_backwards_[arm]});
    order_.push_back({Action::backward_input, chunks_[arm], num_backwards_[arm]++});
  }
  void weight() {
    order_.push_back(deferred_.front());
    deferred_.pop_front();
  }
  Order const& order() const { return order_; }

 private:
  int const chunks_[2];
  int num_forwards_[2] = {0, 0};
  int num_backwards_[2] = {0, 0};
  std::deque<ScheduleItem> deferred_;
  Order order_;
};

/// DualPipe cut into a V: every stage has a chunk of each arm, so micro-batches go down and come back, and in the
/// steady state a forward of one arm stands beside a backward of the other. Weight gradients are deferred where
/// gradients are urgent. A stage holds at most 2P + 1 micro-batches, each in one of its two chunks. Fewer than 2P
/// micro-batches are taken out of a schedule for 2P.
///
/// The first forward of a pair comes before its backward: a processor that computes one after the other idles less so
/// than the other way round where a backward takes longer, at the price of one more micro-batch held.
///
/// Source: DeepSeek-V3 technical report (arXiv:2412.19437), section 3.2.1; the V is DeepSeek's later variant.
Order dualpipe_v(ScheduleSpec const& spec, int stage) {
  int const P = spec.stages;
  int const M = std::max(spec.micro_batches, 2 * P);
  int const above = P - 1 - stage;
  VOrder v(stage, P);
  for (int i = 0; i < 2 * above; ++i) v.forward(0);
  for (int i = 0; i <= stage; ++i) v.forward(0), v.forward(1);
  for (int i = 0; i < above; ++i) v.backward_input(1), v.weight(), v.forward(1);
  for (int i = 0; i < M - 2 * P + stage + 1; ++i) v.forward(0), v.backward(1), v.forward(1), v.backward(0);
  for (int i = 0; i < above; ++i) v.backward(1), v.forward(1), v.backward(0);
  // The last stage + 1 of these 2 (stage + 1) backwards leave their weight gradients for later.
  for (int i = 0; i < 2 * (stage + 1); ++i) i <= stage ? v.backward(1 - i % 2) : v.backward_input(1 - i % 2);
  for (int i = 0; i < above; ++i) v.weight(), v.backward_input(0);
  for (int i = 0; i <= stage; ++i) v.weight();
  return v.order();
}

}  // namespace

std::vector<ScheduleItem> compute_order(ScheduleSpec const& spec, int stage) {
  switch (spec.kind) {
    case ScheduleKind::gpipe:
      return gpipe(spec, stage);
    case ScheduleKind::one_f_one_b:
      return one_f_one_b(spec, stage);
    case ScheduleKind::interleaved:
      return interleaved(spec, stage);
    case ScheduleKind::zero_bubble:
      return zero_bubble(spec, stage);
    case ScheduleKind::dualpipe_v:
      return dualpipe_v(spec, stage);
  }
  throw std::logic_error("an unknown kind of schedule");
}

int num_messages_under_way(ScheduleSpec const& spec) {
  if (spec.kind != ScheduleKind::interleaved || spec.virtual_stages == 1) return 1;
  // In a round longer than P the last stage is done with its first micro-batches before stage 0 is.
  return static_cast<int>(interleaved_rounds(spec).front().size()) - spec.stages + 1;
}

}  // namespace isotrain
