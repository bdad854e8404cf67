#include "comm/mpi/host_group.h"

#include <algorithm>
#include <cstring>

namespace triax {
namespace {

constexpr size_t largest_area = size_t{1} << 20;  // of a rank
constexpr size_t all_areas = size_t{32} << 20;    // of a group
constexpr size_t longest_queue = 16;              // pieces
constexpr size_t all_queues = size_t{128} << 20;  // of a group
constexpr size_t page = 4096;

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

struct alignas(64) HostGroup::Phase {
  std::atomic<uint64_t> published;
};

/// From one rank to another. `sent` is the sender's to write, `taken` the receiver's.
struct HostGroup::Queue {
  struct Piece {
    uint64_t message_bytes;
    uint32_t slot;
  };
  alignas(64) std::atomic<uint64_t> sent;
  Piece pieces[longest_queue];  // piece i at i modulo the queue's length
  alignas(64) std::atomic<uint64_t> taken;
};

HostGroup::HostGroup(Board& board, const std::vector<int>& world_ranks, int rank)
    : sends(world_ranks.size()),
      recvs(world_ranks.size()),
      board_(board),
      world_ranks_(world_ranks),
      rank_(rank),
      size_(static_cast<int>(world_ranks.size())) {}

// Parts begin on pages of their own. Returns the size.
size_t HostGroup::lay_out() {
  const size_t n = static_cast<size_t>(size_), pairs = n * (n - 1);
  area_bytes_ = std::min(largest_area, round_up(all_areas / n / 2, page));
  slots_ = std::min(longest_queue, all_queues / piece_bytes / pairs);
  if (slots_ < 2) slots_ = 0;
  notes_at_ = round_up(n * sizeof(Phase), page);
  areas_at_ = notes_at_ + round_up(2 * n * sizeof(OrderNote), page);
  queues_at_ = areas_at_ + 2 * n * area_bytes_;
  slots_at_ = queues_at_ + round_up(pairs * sizeof(Queue), page);
  return slots_at_ + pairs * slots_ * piece_bytes;
}

std::unique_ptr<HostGroup> HostGroup::make(MPI_Comm comm, Board& board, const std::vector<int>& world_ranks) {
  const bool one_host =
      std::all_of(world_ranks.begin(), world_ranks.end(), [&](int rank) { return board.has(rank); });
  if (!one_host || world_ranks.size() < 2) return nullptr;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  std::unique_ptr<HostGroup> group(new HostGroup(board, world_ranks, rank));
  group->memory_ = HostMemory::make(comm, group->lay_out());
  if (!group->memory_) return nullptr;
  // Zeros are what all counters begin with.
  group->phases_ = reinterpret_cast<Phase*>(group->memory_->data());
  return group;
}

char* HostGroup::area_at(int rank, uint64_t phase) const {
  return memory_->data() + areas_at_ + (static_cast<size_t>(rank) * 2 + phase % 2) * area_bytes_;
}

OrderNote* HostGroup::note_at(int rank, uint64_t phase) const {
  return reinterpret_cast<OrderNote*>(memory_->data() + notes_at_) + static_cast<size_t>(rank) * 2 +
         phase % 2;
}

bool HostGroup::all_here() const {
  for (int r = 0; r < size_; ++r)
    if (phases_[r].published.load() < phase_) return false;
  return true;
}

std::vector<int> HostGroup::behind() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r)
    if (phases_[r].published.load() < phase_) ranks.push_back(r);
  return ranks;
}

void HostGroup::publish() {
  phases_[rank_].published.store(++phase_);
  // Whoever comes last sees that all are here, and it alone has news for the others: of two that come at the
  // same time, one at least sees the other.
  if (!all_here()) return;
  for (int r = 0; r < size_; ++r)
    if (r != rank_) board_.ring(world_ranks_[r]);
}

size_t HostGroup::pair_index(int from, int to) const {
  return static_cast<size_t>(from * (size_ - 1) + (to < from ? to : to - 1));
}

HostGroup::Queue& HostGroup::queue(int from, int to) const {
  return reinterpret_cast<Queue*>(memory_->data() + queues_at_)[pair_index(from, to)];
}

char* HostGroup::slot(int from, int to, uint32_t index) const {
  return memory_->data() + slots_at_ + (pair_index(from, to) * slots_ + index) * piece_bytes;
}

bool HostGroup::has_room(int to) const {
  const Queue& q = queue(rank_, to);
  return q.sent.load() - q.taken.load() < slots_;
}

void HostGroup::put(int to, const char* piece, size_t bytes, size_t message_bytes) {
  Queue& q = queue(rank_, to);
  const uint64_t sent = q.sent.load();
  // An empty queue begins anew at its first slot, which is still in the caches, instead of going round.
  const uint32_t last = q.pieces[(sent + slots_ - 1) % slots_].slot;
  const uint32_t index = q.taken.load() == sent ? 0 : (last + 1) % static_cast<uint32_t>(slots_);
  if (bytes) std::memcpy(slot(rank_, to, index), piece, bytes);
  q.pieces[sent % slots_] = {message_bytes, index};
  q.sent.store(sent + 1);
  board_.ring(world_ranks_[to]);
}

bool HostGroup::has_piece(int from) const {
  const Queue& q = queue(from, rank_);
  return q.sent.load() > q.taken.load();
}

size_t HostGroup::message_bytes(int from) const {
  const Queue& q = queue(from, rank_);
  return q.pieces[q.taken.load() % slots_].message_bytes;
}

void HostGroup::take(int from, char* piece, size_t bytes) {
  Queue& q = queue(from, rank_);
  const uint64_t taken = q.taken.load();
  if (bytes) std::memcpy(piece, slot(from, rank_, q.pieces[taken % slots_].slot), bytes);
  q.taken.store(taken + 1);
  if (q.sent.load() - taken == slots_) board_.ring(world_ranks_[from]);  // it may have waited for room
}

}  // namespace triax
