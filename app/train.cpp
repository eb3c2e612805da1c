#include "lib/train/run.h"

#include "app/command_line.h"
#include "app/commands.h"

namespace isotrain {

int run_train(std::vector<std::string> const& arguments) {
  TrainSettings settings;
  Settings table("mpirun -np N isotrain train", "Trains a model on a corpus. The bits do not depend on N.");
  declare(table, settings);
  return run_mpi_command(table, arguments,
                         [&](MpiSession const& session) { return run_training(settings, table.dump(), session); });
}

}  // namespace isotrain
