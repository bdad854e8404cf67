#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/mpi/board.h"
#include "comm/mpi/host_memory.h"
#include "comm/mpi/order_note.h"

namespace triax {

/// How the ranks of a group that share a host exchange: through memory that all of them map, without MPI, so
/// that a rank that waits can sleep until its peers ring (Board). Nothing of it waits.
///
/// Collectives go by phases. In each a rank puts its piece into its area and publishes it; when all have,
/// each takes what it needs from the others' areas, and only then publishes again. Two areas in turn are
/// therefore enough: who has published phase p + 1 has taken all of phase p.
///
/// Messages go through a queue of pieces for each pair of ranks and direction, in the order of their starts.
///
/// The memory, as far as it is touched: two areas of area_bytes(), at most 1 MiB each, for each rank, and at
/// most 4 MiB for each pair of ranks that exchange messages, in each direction.
class HostGroup {
 public:
  /// Collective over `comm`, whose ranks are `world_ranks`. Null for all when they are not on one host, are
  /// alone, or can't share memory: then everything goes by MPI.
  static std::unique_ptr<HostGroup> make(MPI_Comm comm, Board& board, const std::vector<int>& world_ranks);

  /// Operations of one kind (and peer) are done in the order of their starts, on all ranks.
  struct Line {
    uint64_t started = 0, done = 0;
  };
  Line collectives;
  std::vector<Line> sends, recvs;  // by peer

  size_t area_bytes() const { return area_bytes_; }
  /// Whether all have published the phase that this rank published last.
  bool all_here() const;
  /// Those that have not.
  std::vector<int> behind() const;
  /// A rank's area of the phase that all have published last; read until this rank publishes the next.
  const char* area(int rank) const { return area_at(rank, phase_); }
  const OrderNote& note(int rank) const { return *note_at(rank, phase_); }
  /// This rank's area of the next phase, written while all_here() until publish().
  char* next_area() { return area_at(rank_, phase_ + 1); }
  OrderNote& next_note() { return *note_at(rank_, phase_ + 1); }
  void publish();

  /// False in a group of so many ranks that the queues would be too short.
  bool carries_messages() const { return slots_ > 0; }
  /// Of a piece of a message, the last one of which may be shorter.
  static constexpr size_t piece_bytes = size_t{256} << 10;
  bool has_room(int to) const;
  /// Needs has_room(); `message_bytes` is the size of the whole message.
  void put(int to, const char* piece, size_t bytes, size_t message_bytes);
  bool has_piece(int from) const;
  /// The size of the whole message that the next piece belongs to; needs has_piece().
  size_t message_bytes(int from) const;
  void take(int from, char* piece, size_t bytes);

 private:
  struct alignas(64) Phase;
  struct Queue;
  HostGroup(Board& board, const std::vector<int>& world_ranks, int rank);
  size_t lay_out();
  char* area_at(int rank, uint64_t phase) const;
  OrderNote* note_at(int rank, uint64_t phase) const;
  Queue& queue(int from, int to) const;
  char* slot(int from, int to, uint32_t index) const;
  size_t pair_index(int from, int to) const;

  Board& board_;
  const std::vector<int> world_ranks_;
  const int rank_, size_;
  size_t area_bytes_ = 0, slots_ = 0;
  size_t notes_at_ = 0, areas_at_ = 0, queues_at_ = 0, slots_at_ = 0;  // where each part of the memory begins
  std::unique_ptr<HostMemory> memory_;
  Phase* phases_ = nullptr;  // by rank
  uint64_t phase_ = 0;       // of this rank
};

}  // namespace triax
