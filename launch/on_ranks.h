#pragma once

#include <functional>

#include "engine/config.h"
#include "engine/train.h"

namespace triax {

/// What looks after the ranks of this process; they live as long as the ranks run.
struct RankGuards {
  Watchdog* watchdog;  ///< ends the job when a rank waits for too long
  CrashReport* crash;  ///< names the rank that crashes
};

/// What one rank does: `local_size` ranks share this host, this one as `local_rank`. Returns the exit status,
/// on which the ranks agree.
using RankBody =
    std::function<int(Communicator& world, int local_rank, int local_size, const RankGuards& guards)>;

/// Runs `body` on the ranks of the job's grid: threads of this process, or, with `mpi`, this process is one
/// of them. A watchdog and a crash report look after them. Faults of ranks are printed here, the first cause
/// first, because only here their rank is known; ranks that do not end after another's failure are ended.
/// Returns the exit status.
int on_ranks(const RunConfig& config, bool mpi, const StopFlag& stop, const RankBody& body);

/// What all processes of a launcher find wrong is told by rank 0 alone: true when this rank, after a while,
/// need not tell.
bool rank_0_speaks(int rank, const StopFlag& stop);

}  // namespace triax
