#pragma once

#include <span>
#include <string>

#include "lib/comm/flight_recorder.h"
#include "lib/comm/operation.h"

namespace isotrain {

class Communicator;

/// What a rank is about to do, as it is compared.
struct RankOperation {
  OperationFacts facts;
  int world_rank = 0;
};

/// Who does what, the ranks that few agree with first, where not all do the same: "rank 2: sum 4 of world (1 x i32);
/// ranks 0, 1, 3: all_gather 4 of world (4 x i32)". "" where they do.
std::string describe_mismatch(std::span<RankOperation const> operations);

/// Whether every collective of this process is compared with that of the other ranks before it starts: one small
/// all-gather more for each. Must be the same on all ranks, and changed only between collectives.
void check_collectives(bool on);
bool collectives_are_checked();

/// A collective from here to the end of the scope, noted in the flight recorder. Where collectives are checked, throws
/// the same Error on all ranks of the group, telling who does what, if they do not do the same; an AgreedError if that
/// group is the whole job.
class NotedCollective {
 public:
  NotedCollective(Communicator const& comm, OperationFacts const& facts);

 private:
  NotedOperation noted_;
};

/// Where collectives are checked: throws the same error if one rank sends another other bytes than that expects.
/// Collective, before an all_to_all.
void check_exchange(Communicator const& comm, std::span<std::size_t const> send_bytes,
                    std::span<std::size_t const> receive_bytes);

}  // namespace isotrain
