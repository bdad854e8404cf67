#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace triax {

/// Everyone's bytes at `root`, by rank; lengths may differ. The others get an empty list. Collective.
std::vector<std::string> gather_bytes(Communicator& world, std::string_view mine, int root);

/// root's bytes for everyone; what the others pass is replaced. Collective.
void broadcast_bytes(Communicator& world, std::string& bytes, int root);

/// Runs `body` on every rank; when it throws on any of them, all throw, with the messages of the ranks that
/// failed ("rank 3: writing ... failed: No space left on device"). DamagedCheckpoint stays one when all
/// failures are of that class. `body` itself must not communicate. Collective.
void collectively(Communicator& world, const std::function<void()>& body);

}  // namespace triax
