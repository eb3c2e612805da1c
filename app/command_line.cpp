#include "app/command_line.h"

#include <cstdio>

#include "lib/comm/agree.h"

namespace isotrain {
namespace {

std::string answer(Settings const& table, Settings::Request request) {
  return request == Settings::Request::help ? table.help() : table.dump_defaults();
}

}  // namespace

int run_command(Settings& table, std::vector<std::string> const& arguments, std::function<int()> const& body) {
  auto const request = table.parse(arguments);
  if (request == Settings::Request::run) return body();
  std::fputs(answer(table, request).c_str(), stdout);
  return 0;
}

int run_mpi_command(Settings& table, std::vector<std::string> const& arguments,
                    std::function<int(MpiSession const&)> const& body) {
  int argc = 0;
  char** argv = nullptr;
  MpiSession const session(argc, argv);
  return session.run([&] {
    auto const request = run_collectively(session.world(), [&] { return table.parse(arguments); });
    if (request == Settings::Request::run) return body(session);
    if (session.rank() == 0) std::fputs(answer(table, request).c_str(), stdout);
    return 0;
  });
}

}  // namespace isotrain
