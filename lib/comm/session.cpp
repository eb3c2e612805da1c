#include "lib/comm/session.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "lib/comm/agree.h"
#include "lib/comm/check_mpi.h"

namespace isotrain {
namespace {

char const* variable(char const* name) {
  return std::getenv(name);
}

int start_mpi(int& argc, char**& argv) {
  int provided = 0;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "start MPI");
  return provided;
}

/// Closes MPI when the constructor fails after starting it.
struct Finalizer {
  bool armed = true;
  ~Finalizer() {
    if (armed) MPI_Finalize();
  }
};

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

Launcher detect_launcher(Environment const& environment) {
  if (environment("OMPI_COMM_WORLD_SIZE")) return Launcher::mpirun;
  if (environment("SLURM_STEP_ID") && environment("SLURM_STEP_NUM_TASKS")) return Launcher::srun;
  return Launcher::alone;
}

std::optional<int> unconnected_processes(int mpi_size, Environment const& environment) {
  // mpirun inside a Slurm job starts its helpers by srun, so its own count comes first.
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    char const* const text = environment(name);
    if (!text) continue;
    int const started = std::atoi(text);
    if (started == mpi_size || mpi_size > 1) return std::nullopt;
    return started;
  }
  return std::nullopt;
}

MpiSession::MpiSession(int& argc, char**& argv) : host_(host_name()) {
  int const provided = start_mpi(argc, argv);
  Finalizer finalizer;
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "set MPI's error handler");
  if (provided < MPI_THREAD_MULTIPLE) {
    throw Error("this MPI library cannot be used from several threads",
                "it gave thread level " + std::to_string(provided), "use one that was built with MPI_THREAD_MULTIPLE");
  }
  world_.emplace(Communicator::duplicate(MPI_COMM_WORLD).named("world"));
  if (auto const started = unconnected_processes(world_->size(), variable)) {
    throw Error(std::to_string(*started) + " processes were started that do not know each other",
                "MPI sees only one rank",
                "launcher and MPI library differ: try 'srun --mpi=pmix', or the mpirun of " + library());
  }
  launcher_ = detect_launcher(variable);
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world_->get(), MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node),
            "find this host's ranks");
  Communicator const local(node);
  local_rank_ = local.rank();
  local_size_ = local.size();
  finalizer.armed = false;
}

MpiSession::~MpiSession() {
  world_.reset();
  if (MPI_Finalize() != MPI_SUCCESS) std::fputs("warning: MPI did not end cleanly\n", stderr);
}

std::string MpiSession::library() const {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "get MPI's version");
  std::string const version(text, length);
  return version.substr(0, version.find_first_of(",\n"));
}

int MpiSession::run(std::function<int()> const& body) const {
  std::string message;
  int exit_code = 1;
  try {
    return body();
  } catch (AgreedError const& error) {
    if (rank() == 0) std::fputs(("error: " + std::string(error.what()) + "\n").c_str(), stderr);
    return error.exit_code();
  } catch (Error const& error) {
    message = error.what();
    exit_code = error.exit_code();
  } catch (std::exception const& error) {
    message = std::string("internal error: ") + error.what();
  }
  std::string const who = size() > 1 ? " on " + host_ + ", rank " + std::to_string(rank()) : "";
  std::fputs(("error" + who + ": " + message + "\n").c_str(), stderr);
  if (size() > 1) MPI_Abort(MPI_COMM_WORLD, exit_code);
  return exit_code;
}

}  // namespace isotrain
