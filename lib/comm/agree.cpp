#include "lib/comm/agree.h"

#include <exception>

#include "lib/comm/session.h"

namespace isotrain {
namespace {

std::string on(std::string const& host, int rank) {
  return "on " + host + ", rank " + std::to_string(rank);
}

}  // namespace

std::optional<Failure> failure_of(std::exception_ptr exception) {
  if (!exception) return std::nullopt;
  try {
    std::rethrow_exception(exception);
  } catch (Error const& error) {
    return Failure{error.what(), error.exit_code()};
  } catch (std::exception const& error) {
    return Failure{std::string("internal error: ") + error.what(), 1};
  } catch (...) {
    return Failure{"internal error: an unknown exception", 1};
  }
}

void agree(Communicator const& comm, std::optional<Failure> const& mine) {
  int const none = comm.size();
  int const first = comm.min(mine ? comm.rank() : none);
  if (first == none) return;
  int const failed = comm.sum(mine ? 1 : 0);
  int const exit_code = comm.max(mine ? mine->exit_code : 0);
  std::string const message = comm.broadcast(mine ? mine->message : "", first);
  std::string const host = comm.broadcast(host_name(), first);
  if (comm.all(mine && mine->message == message) || (first == 0 && failed == 1)) throw AgreedError(message, exit_code);
  std::string who = on(host, first);
  if (failed > 1) who += " and " + std::to_string(failed - 1) + " more rank" + (failed > 2 ? "s" : "");
  throw AgreedError(who + ": " + message, exit_code);
}

void agree_on_same(Communicator const& comm, std::string const& mine, std::string const& what) {
  std::string const common = comm.broadcast(mine, 0);
  int const none = comm.size();
  int const first = comm.min(mine == common ? none : comm.rank());
  if (first == none) return;
  std::string const other = comm.broadcast(mine, first);
  std::string const host = comm.broadcast(host_name(), first);
  throw AgreedError(Error(what + " differ between ranks", "rank 0 has '" + common + "', rank " + std::to_string(first) +
                                                              " on " + host + " has '" + other + "'")
                        .what());
}

}  // namespace isotrain
