#include "lib/comm/collective_check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/comm/agree.h"
#include "lib/comm/check_mpi.h"
#include "lib/comm/communicator.h"
#include "lib/comm/rank_list.h"

namespace isotrain {
namespace {

std::atomic<bool> checked{false};

/// Not through the communicator's own functions: these are what is being checked.
template <class T>
std::vector<T> gather(Communicator const& comm, T const& mine) {
  std::vector<T> all(static_cast<std::size_t>(comm.size()));
  check_mpi(MPI_Allgather(&mine, sizeof(T), MPI_BYTE, all.data(), sizeof(T), MPI_BYTE, comm.get()),
            "compare collectives");
  return all;
}

int world_rank() {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "get the rank");
  return rank;
}

/// Only what all ranks of the job throw is agreed on; an error of a smaller group must end the others, too.
[[noreturn]] void fail(Communicator const& comm, std::string const& problem, std::string const& why) {
  int ranks = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "get the number of ranks");
  if (comm.size() == ranks) throw AgreedError(problem, why);
  throw Error(problem, why);
}

/// What a rank has done in a group, as it travels.
struct History {
  std::uint64_t signature = 0;
  int world_rank = 0;
  std::array<char, 300> text{};
};

/// The last collectives of this group that have ended, the newest first.
std::string last_collectives(Communicator const& comm) {
  constexpr int most_shown = 3;
  int shown = 0;
  std::string text;
  auto const entries = FlightRecorder::of_process().entries();
  for (auto entry = entries.rbegin(); entry != entries.rend() && shown < most_shown; ++entry) {
    auto const& facts = entry->facts;
    if (entry->ended_ns == 0 || facts.number == 0) continue;
    if (facts.group != comm.name() || facts.group_size != comm.size()) continue;
    text += (shown++ > 0 ? ", before it " : "") + describe(facts);
  }
  return text;
}

std::string describe_histories(std::vector<History> const& histories) {
  std::vector<std::pair<std::uint64_t, int>> keys;
  for (History const& history : histories) keys.emplace_back(history.signature, history.world_rank);
  std::string text;
  for (auto const& [signature, ranks] : group_ranks(keys)) {
    auto const first = std::ranges::find(histories, ranks.front(), &History::world_rank);
    text += (text.empty() ? "" : "; ") + list_ranks(ranks) + ": last " + first->text.data();
  }
  return text;
}

}  // namespace

std::string describe_mismatch(std::span<RankOperation const> operations) {
  std::vector<std::pair<OperationFacts, int>> keys;
  for (auto const& [facts, rank] : operations) keys.emplace_back(common_part(facts), rank);
  auto const groups = group_ranks(keys);
  if (groups.size() < 2) return "";
  std::string text;
  for (auto const& group : groups) {
    std::string const what = describe(group.key);
    bool const looks_the_same = std::ranges::count(groups, what, [](auto const& g) { return describe(g.key); }) > 1;
    text += (text.empty() ? "" : "; ") + list_ranks(group.ranks) + ": " + what;
    if (looks_the_same) text += " with other counts per rank";
  }
  return text;
}

void check_collectives(bool on) {
  checked = on;
}

bool collectives_are_checked() {
  return checked.load(std::memory_order_relaxed);
}

NotedCollective::NotedCollective(Communicator const& comm, OperationFacts const& facts) : noted_(facts) {
  if (!collectives_are_checked()) return;
  std::string const mismatch = describe_mismatch(gather(comm, RankOperation{facts, world_rank()}));
  if (!mismatch.empty()) fail(comm, "ranks that should do the same do not", mismatch);
}

void check_exchange(Communicator const& comm, std::span<std::size_t const> send_bytes,
                    std::span<std::size_t const> receive_bytes) {
  if (!collectives_are_checked()) return;
  std::vector<std::size_t> coming(send_bytes.size());
  check_mpi(MPI_Alltoall(send_bytes.data(), sizeof(std::size_t), MPI_BYTE, coming.data(), sizeof(std::size_t), MPI_BYTE,
                         comm.get()),
            "compare counts");
  struct Finding {
    std::size_t sent = 0;
    std::size_t expected = 0;
    int from = -1;
    int world_rank = 0;
  };
  Finding mine{.world_rank = world_rank()};
  for (std::size_t r = 0; r < coming.size() && mine.from < 0; ++r) {
    if (coming[r] != receive_bytes[r]) mine = {coming[r], receive_bytes[r], static_cast<int>(r), mine.world_rank};
  }
  auto const all = gather(comm, mine);
  auto const found = std::ranges::find_if(all, [](Finding const& finding) { return finding.from >= 0; });
  if (found == all.end()) return;
  auto const sender = all[static_cast<std::size_t>(found->from)].world_rank;
  fail(comm, "ranks disagree on what one sends another",
       "in all_to_all rank " + std::to_string(sender) + " sends " + std::to_string(found->sent) + " bytes to rank " +
           std::to_string(found->world_rank) + ", which expects " + std::to_string(found->expected));
}

void Communicator::check_signature() const {
  std::uint64_t const mine = signature_;
  NotedCollective const noted(*this, next(Operation::check_signature, {}, 0));
  std::array<std::uint64_t, 2> extremes{mine, ~mine};
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, extremes.data(), 2, MPI_UINT64_T, MPI_MAX, get()), "compare signatures");
  if (extremes[0] == ~extremes[1]) return;
  History history{.signature = mine, .world_rank = world_rank()};
  std::string const text = last_collectives(*this);
  std::memcpy(history.text.data(), text.data(), std::min(text.size(), history.text.size() - 1));
  fail(*this, "ranks did not do the same until now", describe_histories(gather(*this, history)));
}

}  // namespace isotrain
