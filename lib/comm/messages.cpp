#include <algorithm>

#include "lib/comm/check_mpi.h"
#include "lib/comm/communicator.h"
#include "lib/comm/flight_recorder.h"

namespace isotrain {

Messages::~Messages() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (expected_[i] >= 0) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

OperationFacts Messages::facts(Operation operation, std::size_t count, Element element, int peer) const {
  return {.count = count,
          .group = comm_->name(),
          .name = NamedOperations::current(),
          .peer = peer,
          .group_size = comm_->size(),
          .element = element,
          .operation = operation};
}

void Messages::send_bytes(void const* data, std::size_t count, Element element, int to, int tag) {
  NotedOperation const noted(facts(Operation::send, count, element, to));
  if (requests_.empty()) first_peer_ = to;
  std::size_t bytes = count * element.bytes;
  for (auto const* at = static_cast<std::byte const*>(data); bytes > 0;) {
    std::size_t const piece = std::min(bytes, comm_->piece_bytes());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(at, static_cast<int>(piece), MPI_BYTE, to, tag, comm_->get(), &request), "send to a rank");
    requests_.push_back(request);
    expected_.push_back(-1);
    at += piece;
    bytes -= piece;
  }
}

void Messages::receive_bytes(void* data, std::size_t count, Element element, int from, int tag) {
  NotedOperation const noted(facts(Operation::receive, count, element, from));
  if (requests_.empty()) first_peer_ = from;
  std::size_t bytes = count * element.bytes;
  for (auto* at = static_cast<std::byte*>(data); bytes > 0;) {
    std::size_t const piece = std::min(bytes, comm_->piece_bytes());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(at, static_cast<int>(piece), MPI_BYTE, from, tag, comm_->get(), &request),
              "receive from a rank");
    requests_.push_back(request);
    expected_.push_back(static_cast<int>(piece));
    at += piece;
    bytes -= piece;
  }
}

void Messages::wait() {
  if (requests_.empty()) return;
  NotedOperation const noted(facts(Operation::wait, requests_.size(), {}, first_peer_));
  std::vector<MPI_Status> statuses(requests_.size());
  int const code = MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), statuses.data());
  finish(code, statuses);
}

bool Messages::test() {
  if (requests_.empty()) return true;
  int done = 0;
  std::vector<MPI_Status> statuses(requests_.size());
  int const code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data());
  if (code == MPI_SUCCESS && done == 0) return false;
  finish(code, statuses);
  return true;
}

void Messages::finish(int code, std::vector<MPI_Status> const& statuses) {
  if (code == MPI_ERR_IN_STATUS) {
    for (MPI_Status const& status : statuses) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) check_mpi(status.MPI_ERROR, "finish a message");
    }
  }
  check_mpi(code, "finish messages");
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    int received = 0;
    if (expected_[i] < 0) continue;
    check_mpi(MPI_Get_count(&statuses[i], MPI_BYTE, &received), "count what came");
    expects(received == expected_[i], "sender and receiver to agree on the length of a message");
  }
  requests_.clear();
  expected_.clear();
}

}  // namespace isotrain
