#include "lib/comm/flight_recorder.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>

#include "lib/comm/random_delay.h"

namespace isotrain {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

thread_local std::optional<std::size_t> slot_of_thread;

constexpr auto relaxed = std::memory_order_relaxed;

}  // namespace

FlightRecorder& FlightRecorder::of_process() {
  static FlightRecorder recorder;
  return recorder;
}

std::size_t FlightRecorder::begin(OperationFacts const& facts) {
  // What another thread still does is passed over; a ring that is full of such loses the oldest.
  std::uint64_t number = 0;
  for (std::size_t tries = 0; tries < size; ++tries) {
    number = next_.fetch_add(1, relaxed);
    if (slots_[number % size].ended_ns.load(relaxed) != 0) break;
  }
  Slot& slot = slots_[number % size];
  slot.sequence.store(0, relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::int64_t const now = now_ns();
  slot.begun_ns.store(now, relaxed);
  slot.touched_ns.store(now, relaxed);
  slot.ended_ns.store(0, relaxed);
  auto const words = std::bit_cast<OperationWords>(facts);
  for (std::size_t i = 0; i < words.size(); ++i) slot.words[i].store(words[i], relaxed);
  slot.sequence.store(number + 1, std::memory_order_release);
  return number % size;
}

void FlightRecorder::touch(std::size_t slot) {
  slots_[slot].touched_ns.store(now_ns(), relaxed);
}

void FlightRecorder::end(std::size_t slot) {
  std::int64_t const now = now_ns();
  slots_[slot].ended_ns.store(now, relaxed);
  last_ended_ns_.store(now, relaxed);
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  std::vector<Entry> entries;
  for (Slot const& slot : slots_) {
    Entry entry;
    entry.sequence = slot.sequence.load(std::memory_order_acquire);
    if (entry.sequence == 0) continue;
    entry.begun_ns = slot.begun_ns.load(relaxed);
    entry.touched_ns = slot.touched_ns.load(relaxed);
    entry.ended_ns = slot.ended_ns.load(relaxed);
    OperationWords words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = slot.words[i].load(relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.sequence.load(relaxed) != entry.sequence) continue;
    entry.facts = std::bit_cast<OperationFacts>(words);
    entries.push_back(entry);
  }
  std::ranges::sort(entries, {}, &Entry::sequence);
  return entries;
}

void FlightRecorder::touch_all() {
  last_ended_ns_.store(now_ns(), relaxed);
}

NotedOperation::NotedOperation(OperationFacts const& facts) : is_part_(slot_of_thread.has_value()) {
  random_delay();
  slot_ = is_part_ ? *slot_of_thread : FlightRecorder::of_process().begin(facts);
  slot_of_thread = slot_;
}

NotedOperation::~NotedOperation() {
  if (is_part_) {
    FlightRecorder::of_process().touch(slot_);
    return;
  }
  slot_of_thread.reset();
  FlightRecorder::of_process().end(slot_);
}

}  // namespace isotrain
