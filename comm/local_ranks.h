#pragma once

#include <functional>

#include "comm/communicator.h"

namespace triax {

/// Runs `body` on `size` threads of this process, one for each rank of a ThreadWorld, and returns when all
/// have ended. When a rank throws, the world is aborted, so that the others end at their next or current
/// call; after all have been joined the first cause (what was thrown first and is not Error(aborted)) is
/// thrown here, with its kind and place, as "rank N: ..."; when other ranks failed by themselves as well, as
/// "first cause: rank N: ..." with a line "after that, rank M: ..." for each. `world` must not be used after
/// body returns. `on_failure` is called with the cause so far by the thread of each rank that fails, before
/// the others have ended, which they may never do.
void run_local_ranks(int size, const CommOptions& options,
                     const std::function<void(Communicator& world, int rank)>& body,
                     const std::function<void(const Error& cause)>& on_failure = {});

}  // namespace triax
