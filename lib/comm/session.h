#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lib/comm/communicator.h"

namespace isotrain {

/// How this process was started: alone, by mpirun (or mpiexec), or directly by Slurm's srun.
enum class Launcher { alone, mpirun, srun };

/// MPI from its start to its end: the first object in main, the last destroyed. Starts MPI with MPI_THREAD_MULTIPLE,
/// with error codes instead of aborts. Throws Error if the library cannot do that, or if the launcher started several
/// processes that MPI does not connect.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;

  /// All ranks; a duplicate of MPI_COMM_WORLD.
  Communicator const& world() const { return *world_; }
  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  /// Among the ranks of this host.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  std::string const& host() const { return host_; }
  Launcher launcher() const { return launcher_; }
  /// "Open MPI v4.1.4", from the library.
  std::string library() const;

  /// Runs body and gives back its exit code. An error that all ranks share (AgreedError, lib/comm/agree.h) is printed
  /// by rank 0; its exit code is returned. Any other exception is printed with host and rank, in one write; if there
  /// are other ranks, the whole job is aborted then, since they may wait for this one.
  int run(std::function<int()> const& body) const;

 private:
  std::optional<Communicator> world_;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::string host_;
  Launcher launcher_ = Launcher::alone;
};

/// Environment variables by name; null where not set.
using Environment = std::function<char const*(char const* name)>;

Launcher detect_launcher(Environment const& environment);

/// The number of processes that the launcher started, if that is not `mpi_size`: then each of them believes to be
/// alone.
std::optional<int> unconnected_processes(int mpi_size, Environment const& environment);

std::string host_name();

}  // namespace isotrain
