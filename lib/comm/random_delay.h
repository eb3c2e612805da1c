#pragma once

#include <cstdint>

/// For tests: what depends on who comes first shows when nobody knows who that is.
namespace isotrain {

/// From now on every operation between ranks begins with a sleep of a random time below `most_ms` milliseconds, other
/// ones for every `key`; 0: no more. Not while operations are under way.
void delay_operations(double most_ms, std::uint64_t key);

/// One such sleep.
void random_delay();

}  // namespace isotrain
