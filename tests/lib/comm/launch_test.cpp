#include <gtest/gtest.h>

#include <map>
#include <string>

#include "lib/comm/session.h"

namespace isotrain::test {
namespace {

Environment environment(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](char const* name) {
    auto const found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Launch, KnowsItsLauncher) {
  EXPECT_EQ(detect_launcher(environment({})), Launcher::alone);
  EXPECT_EQ(detect_launcher(environment({{"OMPI_COMM_WORLD_SIZE", "4"}})), Launcher::mpirun);
  EXPECT_EQ(detect_launcher(environment({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}})), Launcher::srun);
  // mpirun inside a Slurm job starts its helpers by srun.
  EXPECT_EQ(detect_launcher(
                environment({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}})),
            Launcher::mpirun);
  // A program in a batch script, without srun, is alone whatever the size of the job.
  EXPECT_EQ(detect_launcher(environment({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}})), Launcher::alone);
}

TEST(Launch, FindsProcessesThatMpiDoesNotConnect) {
  EXPECT_EQ(unconnected_processes(1, environment({{"OMPI_COMM_WORLD_SIZE", "4"}})), 4);
  EXPECT_EQ(unconnected_processes(1, environment({{"PMI_SIZE", "3"}})), 3);
  EXPECT_EQ(unconnected_processes(1, environment({{"SLURM_STEP_NUM_TASKS", "8"}})), 8);
}

TEST(Launch, AcceptsWhatFits) {
  EXPECT_EQ(unconnected_processes(1, environment({})), std::nullopt);
  EXPECT_EQ(unconnected_processes(4, environment({{"OMPI_COMM_WORLD_SIZE", "4"}})), std::nullopt);
  EXPECT_EQ(unconnected_processes(1, environment({{"SLURM_STEP_NUM_TASKS", "1"}})), std::nullopt);
  EXPECT_EQ(unconnected_processes(1, environment({{"SLURM_NTASKS", "8"}})), std::nullopt);
  EXPECT_EQ(unconnected_processes(1, environment({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}})),
            std::nullopt);
}

}  // namespace
}  // namespace isotrain::test
