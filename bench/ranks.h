#pragma once

#include <functional>

#include "comm/communicator.h"

namespace triax {

/// Runs `body` on every rank and returns its end: the processes of mpirun or srun where this is one of them,
/// else `ranks` threads of this process (0: as many as cores). A failure under MPI ends all processes.
void run_bench_ranks(int ranks, const std::function<void(Communicator& world)>& body);

/// The same for a process of mpirun or srun alone.
void run_bench_processes(const std::function<void(MpiWorld& mpi, Communicator& world)>& body);

/// Seconds that `body` takes on all ranks of `group`: the longest over ranks, the shortest over at least
/// three runs and about `budget` seconds, after one that is not counted. Collective; the same on every rank.
double best_seconds_together(Communicator& group, double budget, const std::function<void()>& body);

}  // namespace triax
