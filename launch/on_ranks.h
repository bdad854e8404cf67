#pragma once

#include <functional>

#include "engine/config.h"
#include "engine/train.h"

namespace triax {

/// What one rank does: `local_size` ranks share this host, this one as `local_rank`. Returns the exit status,
/// on which the ranks agree.
using RankBody = std::function<int(Communicator& world, int local_rank, int local_size)>;

/// Runs `body` on the ranks of the job's grid: threads of this process, or, with `mpi`, this process is one
/// of them. Faults of ranks are printed here, because only here their rank is known. Returns the exit status.
int on_ranks(const RunConfig& config, bool mpi, const StopFlag& stop, const RankBody& body);

/// What all processes of a launcher find wrong is told by rank 0 alone: true when this rank, after a while,
/// need not tell.
bool rank_0_speaks(int rank, const StopFlag& stop);

}  // namespace triax
