#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "comm/recorder.h"
#include "core/process.h"

namespace triax {

/// What each rank of this host started last, in memory that they share: a rank that waits in vain reads there
/// where the missing ones are, without their help.
class Board {
 public:
  /// Collective over the host's ranks. Without shared memory the board stays empty.
  explicit Board(MPI_Comm host);
  /// Collective; while MPI is up.
  void free();

  void started(const std::string& group, const CommCall& call);
  void finished(const CommCall& call);
  /// "has not finished all_reduce(sum) ... in group 'tp'" of a rank of MPI_COMM_WORLD.
  std::string whereabouts(int world_rank) const;
  /// Who that rank is, and what the system says of it; empty for a rank of another host. From any thread,
  /// until free().
  std::string process_words(int world_rank) const;
  /// SIGKILLs the other ranks of this host, or only those that are stopped.
  void kill_others(bool all) const noexcept;

 private:
  struct Slot;
  MPI_Win window_ = MPI_WIN_NULL;
  Slot* mine_ = nullptr;
  std::vector<Slot*> slots_;  // by world rank; null for a rank of another host
};

}  // namespace triax
