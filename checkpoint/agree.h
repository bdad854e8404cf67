#pragma once

#include <functional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"

namespace triax {

/// What collectively() throws: every rank has it at the same place of the program, so that it can be caught
/// and handled on all ranks alike (a peer's death can't).
class AgreedError : public Error {
 public:
  AgreedError(ErrorKind kind, ErrorKind cause, std::string message, std::source_location place)
      : Error(kind, std::move(message), place), cause_(cause) {}
  /// The kind of the failure itself, also on ranks whose own kind() is aborted.
  ErrorKind cause() const { return cause_; }

 private:
  ErrorKind cause_;
};

/// Everyone's bytes at `root`, by rank; lengths may differ. The others get an empty list. Collective.
std::vector<std::string> gather_bytes(Communicator& world, std::string_view mine, int root);

/// The same without keeping them: `visit` gets them on `root`, in the order of the ranks, its own included.
/// It must not throw. Collective.
void collect_bytes(Communicator& world, std::string_view mine, int root,
                   const std::function<void(int rank, std::string bytes)>& visit);

/// root's bytes for everyone; what the others pass is replaced. Collective.
void broadcast_bytes(Communicator& world, std::string& bytes, int root);

/// Runs `body` on every rank; when it throws on any of them, all throw. A rank that failed throws its own
/// failure (kind, place and words); the others, which only follow, throw an Error(aborted) that quotes it
/// ("rank 3: checkpoint/file_io.cpp:88: writing ... failed: No space left on device"). The class is
/// DamagedCheckpoint on all ranks when all failures are of it, and AgreedError otherwise. `body` itself must
/// not communicate. Collective.
void collectively(Communicator& world, const std::function<void()>& body,
                  std::source_location place = std::source_location::current());

}  // namespace triax
