// The reductions of a communicator that are exact, so that MPI may do them in any order.

#include <bit>
#include <limits>

#include "lib/comm/check_mpi.h"
#include "lib/comm/communicator.h"

namespace isotrain {
namespace {

template <class T>
MPI_Datatype mpi_type() {
  static_assert(std::integral<T>);
  constexpr bool is_signed = std::signed_integral<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? MPI_INT8_T : MPI_UINT8_T;
  if constexpr (sizeof(T) == 2) return is_signed ? MPI_INT16_T : MPI_UINT16_T;
  if constexpr (sizeof(T) == 4) return is_signed ? MPI_INT32_T : MPI_UINT32_T;
  if constexpr (sizeof(T) == 8) return is_signed ? MPI_INT64_T : MPI_UINT64_T;
}

template <class T>
void reduce(Communicator const& comm, std::span<T> data, MPI_Op operation) {
  while (!data.empty()) {
    std::size_t const piece = std::min(data.size(), comm.piece_bytes() / sizeof(T));
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(piece), mpi_type<T>(), operation, comm.get()),
              "reduce over all ranks");
    data = data.subspan(piece);
  }
}

/// Turns a floating-point number into an integer of the same order, and such an integer back.
template <class Bits>
Bits flip_order(Bits bits) {
  return bits < 0 ? bits ^ std::numeric_limits<Bits>::max() : bits;
}

template <class T>
void reduce_ordered(Communicator const& comm, std::span<T> data, MPI_Op operation) {
  if constexpr (std::floating_point<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
    std::vector<Bits> keys;
    for (T value : data) keys.push_back(flip_order(std::bit_cast<Bits>(value)));
    reduce(comm, std::span(keys), operation);
    for (std::size_t i = 0; i < keys.size(); ++i) data[i] = std::bit_cast<T>(flip_order(keys[i]));
  } else {
    reduce(comm, data, operation);
  }
}

}  // namespace

template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) void Communicator::sum(std::span<T> data) const {
  NotedCollective const noted(*this, next(Operation::sum, element_of<T>(), data.size()));
  reduce(*this, data, MPI_SUM);
}
template <class T>
requires(std::integral<T> && !std::same_as<T, bool>) void Communicator::bit_or(std::span<T> data) const {
  NotedCollective const noted(*this, next(Operation::bit_or, element_of<T>(), data.size()));
  reduce(*this, data, MPI_BOR);
}
template <class T>
void Communicator::max(std::span<T> data) const {
  NotedCollective const noted(*this, next(Operation::max, element_of<T>(), data.size()));
  reduce_ordered(*this, data, MPI_MAX);
}
template <class T>
void Communicator::min(std::span<T> data) const {
  NotedCollective const noted(*this, next(Operation::min, element_of<T>(), data.size()));
  reduce_ordered(*this, data, MPI_MIN);
}

template void Communicator::sum(std::span<std::int32_t>) const;
template void Communicator::sum(std::span<std::int64_t>) const;
template void Communicator::sum(std::span<std::uint64_t>) const;
template void Communicator::bit_or(std::span<std::uint8_t>) const;
template void Communicator::bit_or(std::span<std::uint64_t>) const;
template void Communicator::max(std::span<std::int32_t>) const;
template void Communicator::max(std::span<std::int64_t>) const;
template void Communicator::max(std::span<std::uint64_t>) const;
template void Communicator::max(std::span<float>) const;
template void Communicator::max(std::span<double>) const;
template void Communicator::min(std::span<std::int32_t>) const;
template void Communicator::min(std::span<std::int64_t>) const;
template void Communicator::min(std::span<std::uint64_t>) const;
template void Communicator::min(std::span<float>) const;
template void Communicator::min(std::span<double>) const;

}  // namespace isotrain
