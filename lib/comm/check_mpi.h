#pragma once

#include <source_location>

namespace isotrain {

/// Throws Error "cannot <what> (<MPI's text>, at file:line)" unless `code` is MPI_SUCCESS. Communicators of ours return
/// codes instead of aborting.
void check_mpi(int code, char const* what, std::source_location where = std::source_location::current());

}  // namespace isotrain
