#pragma once

#include <functional>

#include "engine/config.h"
#include "engine/train.h"

namespace triax {

/// What a rank finds when it starts.
struct RankStart {
  int local_rank, local_size;  ///< `local_size` ranks share this host, this one as `local_rank`
  bool mpi;                    ///< ranks are processes, else threads of this one
  const StopFlag& stop;        ///< what signals ask for
  Watchdog* watchdog;          ///< ends the job when a rank waits for too long
  CrashReport* crash;          ///< names the rank that crashes
};

/// What one rank does. Returns the exit status, on which the ranks agree.
using RankBody = std::function<int(Communicator& world, const RankStart& start)>;
/// Reads what the ranks are to work on, for a launcher's number of processes or, with 0, none. Throws
/// Error(usage) where that can't be done.
using LoadConfig = std::function<RunConfig(int launched)>;

/// A command that works on ranks, from its first line to its exit status: listens to signals, loads, and runs
/// `body` on the ranks of the job's grid: threads of this process, or, started by an MPI launcher, this
/// process is one of them. What all processes of a launcher find wrong while loading is told by rank 0 alone.
/// A watchdog and a crash report look after the ranks. Faults of ranks are printed here, the first cause
/// first, because only here their rank is known; ranks that do not end after another's failure are ended.
/// `interrupted`: what the console is told about the first SIGINT.
int run_on_ranks(const char* interrupted, const LoadConfig& load, const RankBody& body);

}  // namespace triax
