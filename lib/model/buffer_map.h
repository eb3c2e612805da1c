#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/device/buffers.h"

namespace isotrain {

/// Memory that blocks of one kind use one after the other: what a block puts there lasts until the next block of its
/// kind runs.
enum class Scratch { attention, ffn };

/// Where in a BufferPlan the memory of a model is.
struct BufferLayout {
  std::vector<BufferId<std::byte>> own;             // in order of the calls of BufferMap::own
  std::array<BufferId<std::byte>, 2> scratch = {};  // one for each Scratch
};

/// Hands out memory by one description that is walked twice: first to plan (spans are empty), then, in the same order,
/// to bind what was planned to allocated buffers. So sizes and names are written once.
class BufferMap {
 public:
  explicit BufferMap(BufferPlan& plan) : plan_(&plan) {}
  BufferMap(BufferLayout layout, Buffers const& buffers) : buffers_(&buffers), layout_(std::move(layout)) {}

  /// `count` elements of its own.
  template <class U>
  std::span<U> own(char const* purpose, std::string const& name, std::int64_t count) {
    if (plan_ != nullptr) {
      layout_.own.push_back(plan_->add<std::byte>(purpose, name, count * static_cast<std::int64_t>(sizeof(U))));
      return {};
    }
    return {reinterpret_cast<U*>((*buffers_)[layout_.own[next_++]].data()), static_cast<std::size_t>(count)};
  }

  /// `count` elements of a scratch region, after those handed out since the last `rewind` of it.
  template <class U>
  std::span<U> scratch(Scratch region, std::int64_t count) {
    auto const index = static_cast<std::size_t>(region);
    std::int64_t const begin = used_[index];
    std::int64_t const bytes = count * static_cast<std::int64_t>(sizeof(U));
    used_[index] += (bytes + alignment - 1) / alignment * alignment;
    needed_[index] = std::max(needed_[index], used_[index]);
    if (plan_ != nullptr) return {};
    return {reinterpret_cast<U*>((*buffers_)[layout_.scratch[index]].data() + begin), static_cast<std::size_t>(count)};
  }
  /// The next block of the kind uses the region from its start.
  void rewind(Scratch region) { used_[static_cast<std::size_t>(region)] = 0; }

  /// Ends planning. `beside`: of a part planned before whose blocks never run at the same time; scratch is shared.
  BufferLayout finish(BufferLayout const* beside) {
    char const* const names[] = {"scratch of an attention block", "scratch of a feed-forward block"};
    for (std::size_t i = 0; i < needed_.size(); ++i) {
      layout_.scratch[i] = beside != nullptr ? plan_->at_least(beside->scratch[i], needed_[i])
                                             : plan_->add<std::byte>("workspace", names[i], needed_[i]);
    }
    return layout_;
  }

 private:
  static constexpr std::int64_t alignment = 64;

  BufferPlan* plan_ = nullptr;
  Buffers const* buffers_ = nullptr;
  BufferLayout layout_;
  std::size_t next_ = 0;
  std::array<std::int64_t, 2> used_ = {};
  std::array<std::int64_t, 2> needed_ = {};
};

}  // namespace isotrain
