#include "lib/comm/communicator.h"

#include <cstring>
#include <numeric>

#include "lib/comm/check_mpi.h"

namespace isotrain {
namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

std::uint64_t hash_of(std::vector<std::size_t> const& counts) {
  std::uint64_t hash = counts.size();
  for (std::size_t count : counts) hash = (hash ^ count) * 0x9e3779b97f4a7c15U ^ (hash >> 29);
  return hash;
}

}  // namespace

void detail::free_communicator(MPI_Comm comm) noexcept {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm);
}

Communicator::Communicator(MPI_Comm owned, std::size_t piece_bytes) : comm_(owned), piece_bytes_(piece_bytes) {
  expects(piece_bytes >= 8 && piece_bytes < (std::size_t{1} << 31), "pieces of 8 bytes to 2 GiB");
  check_mpi(MPI_Comm_set_errhandler(owned, MPI_ERRORS_RETURN), "set the error handler of a communicator");
  check_mpi(MPI_Comm_rank(owned, &rank_), "get the rank");
  check_mpi(MPI_Comm_size(owned, &size_), "get the number of ranks");
}

Communicator Communicator::duplicate(MPI_Comm comm, std::size_t piece_bytes) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy), "duplicate a communicator");
  return Communicator(copy, piece_bytes);
}

Communicator Communicator::named(std::string_view name) && {
  name_ = ShortName(name);
  return std::move(*this);
}

OperationFacts Communicator::next(Operation operation, Element element, std::uint64_t count, int root,
                                  std::uint64_t parts) const {
  OperationFacts const facts{.number = ++num_collectives_,
                             .count = count,
                             .parts = parts,
                             .group = name_,
                             .name = NamedOperations::current(),
                             .peer = root,
                             .group_size = size_,
                             .element = element,
                             .operation = operation};
  signature_ = mix_signature(signature_, facts);
  return facts;
}

NotedCollective Communicator::begin(Operation operation, Element element, std::uint64_t count) const {
  return NotedCollective(*this, next(operation, element, count));
}

std::optional<Communicator> Communicator::split(int color, int key) const {
  NotedCollective const noted(*this, next(Operation::split, {}, 0));
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(get(), color < 0 ? MPI_UNDEFINED : color, key, &part), "split a communicator");
  if (part == MPI_COMM_NULL) return std::nullopt;
  return Communicator(part, piece_bytes_);
}

void Communicator::barrier() const {
  NotedCollective const noted(*this, next(Operation::barrier, {}, 0));
  check_mpi(MPI_Barrier(get()), "wait for all ranks");
}

std::string Communicator::broadcast(std::string text, int root) const {
  text.resize(broadcast(text.size(), root));
  broadcast_bytes(text.data(), text.size(), {}, root);
  return text;
}

std::vector<std::string> Communicator::all_gather(std::string const& mine) const {
  std::vector<std::size_t> const lengths = all_gather(mine.size());
  std::string all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  gather_bytes(mine.data(), all.data(), lengths, {});
  std::vector<std::string> texts;
  for (std::size_t begin = 0; std::size_t length : lengths) {
    texts.push_back(all.substr(begin, length));
    begin += length;
  }
  return texts;
}

std::vector<std::int64_t> Communicator::exchange_counts(std::span<std::int64_t const> send_counts) const {
  expects(send_counts.size() == index(size_), "one count per rank");
  NotedCollective const noted(*this, next(Operation::exchange_counts, element_of<std::int64_t>(), 1));
  std::vector<std::int64_t> counts(send_counts.size());
  check_mpi(MPI_Alltoall(send_counts.data(), 1, MPI_INT64_T, counts.data(), 1, MPI_INT64_T, get()), "exchange counts");
  return counts;
}

std::vector<std::size_t> Communicator::to_bytes(std::span<std::int64_t const> counts, std::size_t element,
                                                std::size_t total) {
  std::vector<std::size_t> bytes;
  for (std::int64_t count : counts) {
    expects(count >= 0, "counts of at least 0");
    bytes.push_back(static_cast<std::size_t>(count) * element);
  }
  expects(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}) == total, "counts that add up to the buffer");
  return bytes;
}

void Communicator::broadcast_bytes(void* data, std::size_t count, Element element, int root) const {
  NotedCollective const noted(*this, next(Operation::broadcast, element, count, root));
  std::size_t bytes = count * element.bytes;
  for (auto* at = static_cast<std::byte*>(data); bytes > 0;) {
    std::size_t const piece = std::min(bytes, piece_bytes_);
    check_mpi(MPI_Bcast(at, static_cast<int>(piece), MPI_BYTE, root, get()), "broadcast");
    at += piece;
    bytes -= piece;
  }
}

void Communicator::gather_bytes(void const* mine, void* all, std::vector<std::size_t> const& bytes,
                                Element element) const {
  expects(bytes.size() == index(size_), "one count per rank");
  std::vector<std::size_t> starts(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), starts.begin(), std::size_t{0});
  std::uint64_t const total = (starts.back() + bytes.back()) / element.bytes;
  NotedCollective const noted(*this, next(Operation::all_gather, element, total, -1, hash_of(bytes)));
  auto* const base = static_cast<std::byte*>(all);
  std::byte* const own = base + starts[index(rank_)];
  if (starts.back() + bytes.back() <= piece_bytes_) {
    std::vector<int> const counts(bytes.begin(), bytes.end()), displacements(starts.begin(), starts.end());
    check_mpi(MPI_Allgatherv(mine == own ? MPI_IN_PLACE : mine, counts[index(rank_)], MPI_BYTE, all, counts.data(),
                             displacements.data(), MPI_BYTE, get()),
              "gather from all ranks");
    return;
  }
  if (mine != own && bytes[index(rank_)] > 0) std::memcpy(own, mine, bytes[index(rank_)]);
  // A ring: each step passes on the part that came last.
  int const right = (rank_ + 1) % size_;
  int const left = (rank_ + size_ - 1) % size_;
  for (int step = 0; step + 1 < size_; ++step) {
    std::size_t const out = index((rank_ + size_ - step) % size_);
    std::size_t const in = index((rank_ + size_ - step - 1) % size_);
    Messages messages(*this);
    messages.receive(std::span(base + starts[in], bytes[in]), left);
    messages.send(std::span(base + starts[out], bytes[out]), right);
    messages.wait();
  }
}

void Communicator::exchange_bytes(void const* send, std::vector<std::size_t> const& send_bytes, void* receive,
                                  std::vector<std::size_t> const& receive_bytes, Element element) const {
  expects(send_bytes.size() == index(size_) && receive_bytes.size() == index(size_), "one count per rank");
  expects(send_bytes[index(rank_)] == receive_bytes[index(rank_)], "to receive what it sends itself");
  std::size_t const sent = std::accumulate(send_bytes.begin(), send_bytes.end(), std::size_t{0});
  NotedCollective const noted(*this, next(Operation::all_to_all, element, sent / element.bytes));
  check_exchange(*this, send_bytes, receive_bytes);
  std::vector<std::size_t> from(send_bytes.size()), to(send_bytes.size());
  std::exclusive_scan(send_bytes.begin(), send_bytes.end(), from.begin(), std::size_t{0});
  std::exclusive_scan(receive_bytes.begin(), receive_bytes.end(), to.begin(), std::size_t{0});
  auto const* const source = static_cast<std::byte const*>(send);
  auto* const target = static_cast<std::byte*>(receive);
  Messages messages(*this);
  // Each rank starts with its right neighbour, so that no rank is everyone's first.
  for (int distance = 1; distance < size_; ++distance) {
    std::size_t const peer = index((rank_ + size_ - distance) % size_);
    messages.receive(std::span(target + to[peer], receive_bytes[peer]), static_cast<int>(peer));
  }
  for (int distance = 1; distance < size_; ++distance) {
    std::size_t const peer = index((rank_ + distance) % size_);
    messages.send(std::span(source + from[peer], send_bytes[peer]), static_cast<int>(peer));
  }
  std::size_t const own = index(rank_);
  if (send_bytes[own] > 0) std::memcpy(target + to[own], source + from[own], send_bytes[own]);
  messages.wait();
}

}  // namespace isotrain
