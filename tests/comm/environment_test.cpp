#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "comm/communicator.h"
#include "comm/launched.h"
#include "core/error.h"

namespace triax {
namespace {

const char* const known[] = {"OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "SLURM_LOCALID",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "PMIX_RANK",
                             "PMIX_SIZE",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_STEP_ID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_JOB_ID"};

// "rank/size" of a process with this environment, or "alone".
std::string detected(const std::map<std::string, std::string>& environment) {
  for (const char* name : known) unsetenv(name);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  int rank = -1, size = -1;
  const bool found = started_by_mpi(&rank, &size);
  for (const char* name : known) unsetenv(name);
  return found ? fmt::format("{}/{}", rank, size) : "alone";
}

TEST(StartedByMpi, KnowsTheLaunchers) {
  EXPECT_EQ(detected({}), "alone");
  EXPECT_EQ(detected({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "2/4");
  EXPECT_EQ(detected({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), "0/1");
  EXPECT_EQ(detected({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}), "1/3");
  EXPECT_EQ(detected({{"SLURM_JOB_ID", "9"},
                      {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "8"},
                      {"SLURM_PROCID", "5"},
                      {"PMIX_RANK", "5"}}),
            "5/8");
}

// Each launcher's own names, as its processes have them.
TEST(StartedByMpi, LocalRanksByLauncher) {
  struct Row {
    std::map<std::string, std::string> environment;
    std::string launcher;
    int rank, size, local_rank, local_size;
  };
  const Row rows[] = {
      {{{"OMPI_COMM_WORLD_RANK", "5"},
        {"OMPI_COMM_WORLD_SIZE", "8"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
        {"PMIX_RANK", "5"}},
       "Open MPI",
       5,
       8,
       1,
       4},
      {{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
       "MPICH",
       3,
       4,
       1,
       2},
      {{{"SLURM_STEP_ID", "0"},
        {"SLURM_STEP_NUM_TASKS", "4"},
        {"SLURM_PROCID", "2"},
        {"SLURM_LOCALID", "0"},
        {"PMI_RANK", "2"},
        {"PMI_SIZE", "4"}},
       "Slurm",
       2,
       4,
       0,
       -1},
      {{{"PMIX_RANK", "1"}, {"PMIX_SIZE", "2"}}, "PMIx", 1, 2, -1, -1}};
  for (const Row& row : rows) {
    for (const char* name : known) unsetenv(name);
    for (const auto& [name, value] : row.environment) setenv(name.c_str(), value.c_str(), 1);
    const std::optional<LaunchedRank> told = launched_rank();
    ASSERT_TRUE(told) << row.launcher;
    EXPECT_EQ(told->launcher, row.launcher);
    EXPECT_EQ(told->rank, row.rank) << row.launcher;
    EXPECT_EQ(told->size, row.size) << row.launcher;
    EXPECT_EQ(told->local_rank, row.local_rank) << row.launcher;
    EXPECT_EQ(told->local_size, row.local_size) << row.launcher;
  }
  for (const char* name : known) unsetenv(name);
}

TEST(StartedByMpi, ABatchScriptAndAStepOfOneTaskAreNoMpiJob) {
  EXPECT_EQ(detected({{"SLURM_JOB_ID", "9"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), "alone");
  EXPECT_EQ(detected({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}),
            "alone");
  EXPECT_EQ(detected({{"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_PROCID", "0"},
                      {"PMI_RANK", "0"},
                      {"PMI_SIZE", "1"}}),
            "alone");
}

TEST(StartedByMpi, MpirunInsideABatchJobCounts) {
  EXPECT_EQ(detected({{"SLURM_JOB_ID", "9"},
                      {"SLURM_PROCID", "0"},
                      {"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"}}),
            "3/4");
}

TEST(StartedByMpi, NonsenseDoesNotCount) {
  EXPECT_EQ(detected({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "alone");
  EXPECT_EQ(detected({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "alone");
}

// What detected() throws; empty when it does not.
std::string refused(const std::map<std::string, std::string>& environment) {
  std::string words;
  try {
    detected(environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    words = error.what();
  }
  for (const char* name : known) unsetenv(name);
  return words;
}

// As PMIx servers leave it: each process would be all ranks of the job, as threads.
TEST(StartedByMpi, ARankWithoutASizeIsRefused) {
  for (const std::string kind : {"PMIX", "PMI"}) {
    const std::string words = refused({{kind + "_RANK", "0"}});
    EXPECT_NE(words.find(kind + "_RANK=0 is set"), std::string::npos) << words;
    EXPECT_NE(words.find(kind + "_SIZE is not"), std::string::npos) << words;
    EXPECT_NE(words.find("unset " + kind + "_RANK"), std::string::npos) << words;
    EXPECT_NE(words.find("srun --mpi=pmix"), std::string::npos) << words;
  }
  EXPECT_NE(refused({{"PMIX_RANK", "3"}, {"PMIX_SIZE", "2"}}).find("not as rank of PMIX_SIZE=2"),
            std::string::npos);
  // Others tell.
  EXPECT_EQ(detected({{"PMIX_RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
            "1/2");
  EXPECT_EQ(
      detected(
          {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}}),
      "alone");
  EXPECT_EQ(detected({{"PMIX_RANK", "1"}, {"PMIX_SIZE", "2"}}), "1/2");
}

}  // namespace
}  // namespace triax
