#include <H5public.h>
#include <mpi.h>
#include <boost/version.hpp>

#include <cstdio>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/base/settings.h"
#include "lib/device/cpu.h"

namespace isotrain {

int run_version(std::vector<std::string> const& arguments) {
  Settings table("isotrain version", "Prints the version and what it was built with.");
  return run_command(table, arguments, [] {
    std::printf("isotrain %s (commit %s)\n", ISOTRAIN_VERSION, ISOTRAIN_COMMIT);
    std::printf("  compiler  %s\n", __VERSION__);
    std::printf("  MPI       Open MPI %d.%d.%d\n", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
    std::printf("  HDF5      %d.%d.%d\n", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    std::printf("  Boost     %d.%d.%d\n", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100);
    std::printf("  places    cpu (%s, %s)\n", isa_name().c_str(), processor_name().c_str());
    return 0;
  });
}

}  // namespace isotrain
