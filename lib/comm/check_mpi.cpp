#include "lib/comm/check_mpi.h"

#include <mpi.h>

#include <string>

#include "lib/base/error.h"

namespace isotrain {

void check_mpi(int code, char const* what, std::source_location where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  std::string const reason = length > 0 ? std::string(text, length) : "MPI error " + std::to_string(code);
  throw Error("cannot " + std::string(what), reason + ", at " + where.file_name() + ":" + std::to_string(where.line()));
}

}  // namespace isotrain
