#include "lib/comm/operation.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace isotrain {
namespace {

thread_local ShortName current_name;

std::string text_of(Element element) {
  std::string const bits = std::to_string(8 * element.bytes);
  switch (element.kind) {
    case Element::Kind::real:
      return "f" + bits;
    case Element::Kind::integer:
      return "i" + bits;
    case Element::Kind::natural:
      return "u" + bits;
    case Element::Kind::plain:
      break;
  }
  return element.bytes == 1 ? "bytes" : "elements of " + std::to_string(element.bytes) + " bytes";
}

bool counts_elements(Operation operation) {
  return operation != Operation::barrier && operation != Operation::split && operation != Operation::wait &&
         operation != Operation::check_signature;
}

}  // namespace

char const* name_of(Operation operation) {
  switch (operation) {
    case Operation::barrier:
      return "barrier";
    case Operation::broadcast:
      return "broadcast";
    case Operation::all_gather:
      return "all_gather";
    case Operation::all_to_all:
      return "all_to_all";
    case Operation::exchange_counts:
      return "exchange_counts";
    case Operation::sum:
      return "sum";
    case Operation::bit_or:
      return "bit_or";
    case Operation::max:
      return "max";
    case Operation::min:
      return "min";
    case Operation::split:
      return "split";
    case Operation::tree_sum:
      return "tree_sum";
    case Operation::check_signature:
      return "check_signature";
    case Operation::send:
      return "send";
    case Operation::receive:
      return "receive";
    case Operation::wait:
      return "wait";
  }
  return "unknown operation";
}

ShortName::ShortName(std::string_view name) {
  // The last byte stays 0.
  std::memcpy(text_.data(), name.data(), std::min(name.size(), text_.size() - 1));
}

std::string_view ShortName::view() const {
  return text_.data();
}

std::string describe(OperationFacts const& facts) {
  std::string text = name_of(facts.operation);
  if (facts.number > 0) text += " " + std::to_string(facts.number);
  text += " of ";
  text += facts.group.view().empty() ? "a group of " + std::to_string(facts.group_size) : facts.group.view();
  std::string details;
  auto const add = [&](std::string const& detail) { details += (details.empty() ? "" : ", ") + detail; };
  if (counts_elements(facts.operation)) {
    bool const differs = facts.operation == Operation::all_to_all;
    add((differs ? "" : std::to_string(facts.count) + " x ") + text_of(facts.element));
  }
  if (facts.operation == Operation::wait) {
    add(std::to_string(facts.count) + (facts.count == 1 ? " message" : " messages"));
    if (facts.peer >= 0) add("the first with rank " + std::to_string(facts.peer) + " of it");
  } else if (facts.peer >= 0) {
    bool const to = facts.operation == Operation::send;
    add((to ? "to rank " : "from rank ") + std::to_string(facts.peer) + " of it");
  }
  if (!facts.name.view().empty()) add('"' + std::string(facts.name.view()) + '"');
  return details.empty() ? text : text + " (" + details + ")";
}

OperationFacts common_part(OperationFacts facts) {
  if (facts.operation == Operation::all_to_all) facts.count = 0;
  return facts;
}

std::uint64_t mix_signature(std::uint64_t before, OperationFacts const& facts) {
  std::uint64_t hash = before;
  for (std::uint64_t word : std::bit_cast<OperationWords>(common_part(facts))) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32;
  }
  return hash;
}

NamedOperations::NamedOperations(std::string_view name) : outer_(current_name) {
  current_name = ShortName(name);
}

NamedOperations::NamedOperations(std::string_view name, std::int64_t index) : outer_(current_name) {
  std::array<char, 64> text{};
  std::size_t const length = std::min<std::size_t>(name.size(), 32);
  std::memcpy(text.data(), name.data(), length);
  text[length] = ' ';
  auto const end = std::to_chars(text.data() + length + 1, text.data() + text.size(), index).ptr;
  current_name = ShortName(std::string_view(text.data(), end));
}

NamedOperations::~NamedOperations() {
  current_name = outer_;
}

ShortName const& NamedOperations::current() {
  return current_name;
}

}  // namespace isotrain
