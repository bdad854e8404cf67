#pragma once

#include <optional>

namespace triax {

/// What the environment of a process says that mpirun or srun has started.
struct LaunchedRank {
  const char* launcher;  ///< "Open MPI", "Slurm", "MPICH" (and Intel's), "PMIx"
  int rank = 0, size = 1;
  int local_rank = -1, local_size = -1;  ///< among the ranks of its host; -1: the launcher does not tell
};

/// None for a process that no such launcher has started: a batch script of Slurm, or a step of one task.
std::optional<LaunchedRank> launched_rank();

}  // namespace triax
