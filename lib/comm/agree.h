#pragma once

#include <exception>
#include <optional>
#include <string>
#include <type_traits>

#include "lib/comm/communicator.h"

/// One clear message on all ranks together: what only some ranks can see (a missing file, a full disk) becomes an error
/// of all, so that none waits for another.
namespace isotrain {

/// An error that every rank of the group has thrown at the same place. Rank 0 prints it; the program ends in order.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// What went wrong on this rank.
struct Failure {
  std::string message;
  int exit_code = 1;
};

/// Collective. Returns if no rank brings a failure; else throws on all ranks the same AgreedError: the message of the
/// lowest rank that failed, the highest exit code, and, where not all ranks say the same, who failed:
///   "on node7, rank 3 and 2 more ranks: cannot open '/data/shard-00003.h5' (No such file or directory)"
void agree(Communicator const& comm, std::optional<Failure> const& mine);

/// Collective. Throws the same AgreedError on all ranks unless all bring the same text: "<what> differ between ranks
/// (rank 0 has 'a', rank 3 on node7 has 'b')".
void agree_on_same(Communicator const& comm, std::string const& mine, std::string const& what);

/// Runs an exception's way out into a Failure. For run_collectively.
std::optional<Failure> failure_of(std::exception_ptr exception);

/// Collective. Runs body() on every rank, then agree() on what it threw; gives back what body returned. The body must
/// not communicate: a rank that throws would leave the others waiting.
template <class Body>
auto run_collectively(Communicator const& comm, Body&& body) {
  using Result = std::invoke_result_t<Body>;
  std::exception_ptr exception;
  if constexpr (std::is_void_v<Result>) {
    try {
      body();
    } catch (...) {
      exception = std::current_exception();
    }
    agree(comm, failure_of(exception));
  } else {
    std::optional<Result> result;
    try {
      result.emplace(body());
    } catch (...) {
      exception = std::current_exception();
    }
    agree(comm, failure_of(exception));
    return std::move(*result);
  }
}

}  // namespace isotrain
