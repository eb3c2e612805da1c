#pragma once

#include <mpi.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/unique.h"
#include "lib/comm/collective_check.h"
#include "lib/comm/operation.h"

namespace isotrain {

namespace detail {
void free_communicator(MPI_Comm comm) noexcept;
}

/// What may travel between ranks as it lies in memory.
template <class T>
concept Plain = std::is_trivially_copyable_v<T>;

/// A group of ranks and its messages. Owns the MPI communicator. All functions are collective over the group unless
/// they say otherwise, throw Error when MPI says no, and take any number of elements: what MPI's int counts cannot say
/// goes in pieces.
///
/// There is no floating-point sum: the order in which MPI adds depends on the ranks (docs/numerics.md). Sums of
/// numbers that must be the same on every layout are trees (lib/comm/tree_sum.h), exact (lib/base/exact_sum.h), or
/// gathered and added here.
class Communicator {
 public:
  /// Takes the communicator over. `piece_bytes` is the largest message, below 2^31; tests make it small.
  explicit Communicator(MPI_Comm owned, std::size_t piece_bytes = std::size_t{1} << 30);
  /// What reports call the group: "world", "tensor", ...; 25 letters are kept.
  Communicator named(std::string_view name) &&;
  /// A new communicator of the same ranks: its messages do not meet those of `comm`.
  static Communicator duplicate(MPI_Comm comm, std::size_t piece_bytes = std::size_t{1} << 30);
  /// The ranks that give the same color, ordered by key, then by rank here; none for a negative color.
  std::optional<Communicator> split(int color, int key) const;

  MPI_Comm get() const { return comm_.get(); }
  int rank() const { return rank_; }
  int size() const { return size_; }

  void barrier() const;

  template <Plain T>
  void broadcast(std::span<T> data, int root) const {
    broadcast_bytes(data.data(), data.size(), element_of<T>(), root);
  }
  template <Plain T>
  T broadcast(T value, int root) const {
    broadcast_bytes(&value, 1, element_of<T>(), root);
    return value;
  }
  std::string broadcast(std::string text, int root) const;

  /// One value of each rank, by rank.
  template <Plain T>
  std::vector<T> all_gather(T const& mine) const {
    std::vector<T> all(static_cast<std::size_t>(size_));
    gather_bytes(&mine, all.data(), std::vector<std::size_t>(all.size(), sizeof(T)), element_of<T>());
    return all;
  }
  /// counts[r] elements of each rank r, one rank after the other. `mine` may lie at its place in `all`, not elsewhere
  /// in it.
  template <Plain T>
  void all_gather(std::span<T const> mine, std::span<T> all, std::span<std::int64_t const> counts) const {
    std::vector<std::size_t> const bytes = to_bytes(counts, sizeof(T), all.size_bytes());
    expects(mine.size_bytes() == bytes[static_cast<std::size_t>(rank_)], "as many elements as counts says");
    gather_bytes(mine.data(), all.data(), bytes, element_of<T>());
  }
  std::vector<std::string> all_gather(std::string const& mine) const;

  /// Sends send_counts[r] elements to each rank r and receives receive_counts[r] from it; both lie by rank, without
  /// gaps.
  template <Plain T>
  void all_to_all(std::span<T const> send, std::span<std::int64_t const> send_counts, std::span<T> receive,
                  std::span<std::int64_t const> receive_counts) const {
    exchange_bytes(send.data(), to_bytes(send_counts, sizeof(T), send.size_bytes()), receive.data(),
                   to_bytes(receive_counts, sizeof(T), receive.size_bytes()), element_of<T>());
  }
  /// all_to_all of one element per rank: what the others will send me.
  std::vector<std::int64_t> exchange_counts(std::span<std::int64_t const> send_counts) const;

  /// Element-wise over the ranks, in place; exact, so any order gives the same. Floating-point numbers compare by
  /// IEEE 754 totalOrder: -0 < +0 and NaN with the sign bit clear is above all others, so a NaN of any rank shows in
  /// max.
  template <class T>
  requires(std::integral<T> && !std::same_as<T, bool>) void sum(std::span<T> data) const;
  template <class T>
  requires(std::integral<T> && !std::same_as<T, bool>) void bit_or(std::span<T> data) const;
  template <class T>
  void max(std::span<T> data) const;
  template <class T>
  void min(std::span<T> data) const;

  template <class T>
  T sum(T value) const {
    sum(std::span(&value, 1));
    return value;
  }
  template <class T>
  T max(T value) const {
    max(std::span(&value, 1));
    return value;
  }
  template <class T>
  T min(T value) const {
    min(std::span(&value, 1));
    return value;
  }
  bool any(bool value) const { return max(int{value}) != 0; }
  bool all(bool value) const { return min(int{value}) != 0; }

  std::size_t piece_bytes() const { return piece_bytes_; }
  ShortName const& name() const { return name_; }
  /// Collectives of this group so far; the same on all its ranks.
  std::uint64_t num_collectives() const { return num_collectives_; }

  /// For what is collective over messages of this group: notes it from here to the end of the scope, like the
  /// communicator's own collectives. `count` elements, the same on all ranks.
  [[nodiscard]] NotedCollective begin(Operation operation, Element element, std::uint64_t count) const;

  /// Compares all collectives of this group so far (operation, elements, counts, name) by one hash. Throws the same
  /// Error on all ranks, naming those that did others than most, with their last operations; an AgreedError if the
  /// group is the whole job.
  void check_signature() const;

 private:
  static std::vector<std::size_t> to_bytes(std::span<std::int64_t const> counts, std::size_t element,
                                           std::size_t total);
  void broadcast_bytes(void* data, std::size_t count, Element element, int root) const;
  void gather_bytes(void const* mine, void* all, std::vector<std::size_t> const& bytes, Element element) const;
  void exchange_bytes(void const* send, std::vector<std::size_t> const& send_bytes, void* receive,
                      std::vector<std::size_t> const& receive_bytes, Element element) const;
  /// The facts of the next collective; counts it.
  OperationFacts next(Operation operation, Element element, std::uint64_t count, int root = -1,
                      std::uint64_t parts = 0) const;

  Unique<MPI_Comm, detail::free_communicator, nullptr> comm_;
  int rank_ = 0;
  int size_ = 1;
  std::size_t piece_bytes_;
  ShortName name_;
  /// Collectives of a group are called in one order, so by one thread at a time.
  mutable std::uint64_t num_collectives_ = 0;
  mutable std::uint64_t signature_ = 0;
};

/// Sends and receives that are under way together. Not collective: each rank posts what it has, then waits. Two ranks'
/// messages of one tag arrive in the order of posting. Buffers stay untouched until wait() returns or test() says so.
class Messages {
 public:
  explicit Messages(Communicator const& comm) : comm_(&comm) {}
  Messages(Messages const&) = delete;
  Messages& operator=(Messages const&) = delete;
  /// Gives up what was not waited for (after an exception); never blocks.
  ~Messages();

  template <Plain T>
  void send(std::span<T> data, int to, int tag = 0) {
    send_bytes(data.data(), data.size(), element_of<T>(), to, tag);
  }
  template <Plain T>
  void receive(std::span<T> data, int from, int tag = 0) {
    receive_bytes(data.data(), data.size(), element_of<T>(), from, tag);
  }
  void wait();
  /// Whether all is done; never blocks. What is done is done as after wait().
  bool test();

 private:
  void send_bytes(void const* data, std::size_t count, Element element, int to, int tag);
  void receive_bytes(void* data, std::size_t count, Element element, int from, int tag);
  OperationFacts facts(Operation operation, std::size_t count, Element element, int peer) const;
  void finish(int code, std::vector<MPI_Status> const& statuses);

  Communicator const* comm_;
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;  // bytes of each receive; -1 for sends
  int first_peer_ = -1;        // of the first message that is not waited for
};

}  // namespace isotrain
