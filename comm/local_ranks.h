#pragma once

#include <functional>

#include "comm/communicator.h"

namespace triax {

/// Runs `body` on `size` threads of this process, one for each rank of a ThreadWorld, and returns when all
/// have ended. When a rank throws, the world is aborted, so that the others end at their next or current
/// call; after all have been joined the first cause (what was thrown first and is not Error(aborted)) is
/// thrown here, with its kind and place, as "rank N: ...". `world` must not be used after body returns.
void run_local_ranks(int size, const CommOptions& options,
                     const std::function<void(Communicator& world, int rank)>& body);

}  // namespace triax
