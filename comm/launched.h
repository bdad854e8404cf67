#pragma once

#include <optional>

namespace triax {

/// What the environment of a process says that mpirun or srun has started.
struct LaunchedRank {
  const char* launcher;  ///< "Open MPI", "Slurm", "MPICH" (and Intel's), "PMIx"
  int rank = 0, size = 1;
  int local_rank = -1, local_size = -1;  ///< among the ranks of its host; -1: the launcher does not tell
};

/// None for a process that no such launcher has started: a batch script of Slurm, or a step of one task; also
/// where a launcher does not tell its number of processes (started_by_mpi() refuses that).
std::optional<LaunchedRank> launched_rank();

/// For a process of a launcher that ends without having started MPI: returns when the launcher has started
/// all of its processes on this host, or none more for half a second; at once when asked again. Open MPI's
/// mpirun (4.1), which starts 32 and more from several threads, waits for ever for a process that ended
/// before the last was there.
void outlast_launch();

}  // namespace triax
