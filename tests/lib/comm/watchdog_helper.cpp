// Four ranks under a watchdog with a limit of one second, hanging in the way that the first argument names; the second
// is the folder for reports. CMakeLists.txt says what must come out.

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "lib/comm/session.h"
#include "lib/comm/watchdog.h"

namespace isotrain::test {
namespace {

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

int hang_as_told(MpiSession const& session, std::string const& how, std::string const& folder) {
  Communicator const& world = session.world();
  bool const odd = session.rank() == 2;
  Watchdog const watchdog(
      world, {.limit_s = how == "off" ? 0 : 1.0, .folder = folder, .gather_s = how == "cannot_write" ? 1.0 : 4.0});
  world.barrier();
  if (how == "passes" || how == "off") {
    for (int i = 0; i < 3; ++i) {
      if (odd) sleep_s(0.5);
      world.sum(1);
    }
    if (how == "off") sleep_s(1.5);
  }
  if (how == "works_long") {
    for (int i = 0; i < 8; ++i) {
      sleep_s(0.25);
      FlightRecorder::of_process().touch_all();
    }
    world.sum(1);
  }
  if (how == "sleeps") {
    NamedOperations const name("losses");
    if (odd) sleep_s(60);
    world.all_gather(1);
  }
  // The others come to the collective when rank 2 is over its limit already.
  if (how == "sleeps_first") {
    sleep_s(odd ? 60 : 0.5);
    world.all_gather(1);
  }
  if (how == "waits_for_a_message") {
    std::vector<float> data(8);
    Messages messages(world);
    if (odd) {
      messages.receive(std::span(data), 1);
      messages.wait();
    }
    world.max(1.5);
  }
  if (how == "cannot_write" && !odd) world.barrier();
  if (how == "cannot_write" && odd) sleep_s(60);
  if (session.rank() == 0) std::puts("came through");
  return 0;
}

}  // namespace
}  // namespace isotrain::test

int main(int argc, char** argv) {
  isotrain::MpiSession const session(argc, argv);
  return session.run([&] { return isotrain::test::hang_as_told(session, argv[1], argv[2]); });
}
