#pragma once

#include <mpi.h>

#include <chrono>
#include <string>
#include <vector>

#include "comm/recorder.h"
#include "core/process.h"

namespace triax {

/// What the ranks of this host know of each other through memory that they share. What each started last: a
/// rank that waits in vain reads there where the missing ones are, without their help. And a bell for each:
/// whoever does what another rank may wait for rings it, so that it can sleep meanwhile.
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

  /// Whether this is a rank of this host, which has a place on the board.
  bool has(int world_rank) const { return mine_ && slots_[world_rank]; }
  /// Ranks of this host outnumber the cores that they may run on.
  bool crowded() const { return crowded_; }
  /// How often this rank's bell has been rung.
  uint32_t bell() const;
  /// Wakes a rank of this host, or keeps it from going to sleep; what it waits for has been written before.
  void ring(int world_rank);
  /// Returns when the bell has been rung since it stood at `heard`, or after `longest`.
  void sleep(uint32_t heard, std::chrono::nanoseconds longest);

  /// SIGKILLs the other ranks of this host, or only those that are stopped.
  void kill_others(bool all) const noexcept;

 private:
  struct Slot;
  MPI_Win window_ = MPI_WIN_NULL;
  Slot* mine_ = nullptr;
  bool crowded_ = false;
  std::vector<Slot*> slots_;  // by world rank; null for a rank of another host
};

}  // namespace triax
