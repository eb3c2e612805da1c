// A program under an MpiSession that ends in the way its argument names; CMakeLists.txt says what must come out.

#include <cstdio>
#include <stdexcept>
#include <string>

#include "lib/comm/agree.h"
#include "lib/comm/session.h"

namespace isotrain::test {
namespace {

int end_as_told(MpiSession const& session, std::string const& how) {
  Communicator const& world = session.world();
  int const last = session.size() - 1;
  if (how == "passes") {
    bool const facts = session.local_size() == session.size() && session.local_rank() == session.rank() &&
                       session.host() == host_name() && session.library().starts_with("Open MPI v") &&
                       session.launcher() == Launcher::mpirun;
    if (world.all(facts) && session.rank() == 0) std::puts("all facts hold");
    return 0;
  }
  if (how == "stops_early") return 75;
  if (how == "agrees") {
    run_collectively(world, [&] {
      if (session.rank() == last) throw UsageError("bad setting", "it is bad");
    });
  }
  if (how == "fails_alone" && session.rank() == last) throw Error("broken file");
  if (how == "has_a_bug" && session.rank() == last) throw std::logic_error("a broken contract");
  world.barrier();  // where the other ranks of a lonely failure wait
  return 0;
}

}  // namespace
}  // namespace isotrain::test

int main(int argc, char** argv) {
  isotrain::MpiSession const session(argc, argv);
  return session.run([&] { return isotrain::test::end_as_told(session, argv[1]); });
}
