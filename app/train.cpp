#include <iostream>

#include "app/commands.h"
#include "lib/comm/agree.h"
#include "lib/train/run.h"

namespace isotrain {

int run_train(std::vector<std::string> const& arguments) {
  TrainSettings settings;
  Settings table("mpirun -np N isotrain train", "Trains a model on a corpus. The bits do not depend on N.");
  declare(table, settings);
  // MPI starts before settings are read: what is wrong with them is said once, by rank 0.
  int argc = 0;
  char** argv = nullptr;
  MpiSession const session(argc, argv);
  return session.run([&] {
    auto const request = run_collectively(session.world(), [&] { return table.parse(arguments); });
    if (request != Settings::Request::run) {
      if (session.rank() == 0) std::cout << (request == Settings::Request::help ? table.help() : table.dump_defaults());
      return 0;
    }
    return run_training(settings, table.dump(), session);
  });
}

}  // namespace isotrain
