#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

/// What is said about an operation between ranks, as plain bytes: for the flight recorder, the watchdog's report and
/// the comparison of collectives.
namespace isotrain {

/// All ranks of a group take part in each, except in the last three.
enum class Operation : std::uint32_t {
  barrier,
  broadcast,
  all_gather,
  all_to_all,
  exchange_counts,
  sum,
  bit_or,
  max,
  min,
  split,
  tree_sum,
  check_signature,
  send,
  receive,
  wait,
};

/// "all_gather"
char const* name_of(Operation operation);

/// What an operation counts: numbers, or structs and bytes as they lie in memory.
struct Element {
  enum class Kind : std::uint32_t { plain, integer, natural, real };
  std::uint32_t bytes = 1;
  Kind kind = Kind::plain;

  bool operator==(Element const&) const = default;
};

template <class T>
constexpr Element element_of() {
  auto const bytes = static_cast<std::uint32_t>(sizeof(T));
  if constexpr (std::is_floating_point_v<T>) return {bytes, Element::Kind::real};
  if constexpr (std::signed_integral<T>) return {bytes, Element::Kind::integer};
  if constexpr (std::unsigned_integral<T>) return {bytes, Element::Kind::natural};
  return {bytes, Element::Kind::plain};
}

/// A name in a fixed number of bytes; longer ones are cut.
class ShortName {
 public:
  ShortName() = default;
  explicit ShortName(std::string_view name);
  std::string_view view() const;
  bool operator==(ShortName const&) const = default;

 private:
  std::array<char, 26> text_{};  // so that OperationFacts has no padding, which could not be compared
};

/// One operation on one rank.
struct OperationFacts {
  std::uint64_t number = 0;  // of this collective in its group, from 1; 0 for messages
  std::uint64_t count = 0;   // elements; messages for wait
  std::uint64_t parts = 0;   // of the counts of all ranks, a hash; 0 where there are none
  ShortName group{};         // "world", "tensor", ...
  ShortName name{};          // what it is for, "" if not said
  std::int32_t peer = -1;    // root, sender or receiver, in the group; -1: none
  std::int32_t group_size = 1;
  Element element{};
  Operation operation = Operation::barrier;

  bool operator==(OperationFacts const&) const = default;
};

static_assert(std::has_unique_object_representations_v<OperationFacts>);

/// The same as 64-bit words.
using OperationWords = std::array<std::uint64_t, sizeof(OperationFacts) / sizeof(std::uint64_t)>;

/// `all_gather 12 of world (8 x u64, "losses")`; the same text on ranks that do the same.
std::string describe(OperationFacts const& facts);

/// The facts without what may differ between ranks that do the same.
OperationFacts common_part(OperationFacts facts);

/// 64 bits of common_part(facts), mixed with those of the operations before.
std::uint64_t mix_signature(std::uint64_t before, OperationFacts const& facts);

/// Says what the operations of this thread are for while it lives: "gradients", or with an index "gradients 3". Inside
/// another one it hides that. Allocates nothing.
class NamedOperations {
 public:
  explicit NamedOperations(std::string_view name);
  NamedOperations(std::string_view name, std::int64_t index);
  ~NamedOperations();
  NamedOperations(NamedOperations const&) = delete;
  NamedOperations& operator=(NamedOperations const&) = delete;

  static ShortName const& current();

 private:
  ShortName outer_;
};

}  // namespace isotrain
