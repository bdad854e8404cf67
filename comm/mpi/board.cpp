#include "comm/mpi/board.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

#include "core/futex.h"

namespace triax {

/// Written by its rank alone, but for the bell. `version` is odd while the call is written (a sequence lock).
struct Board::Slot {
  std::atomic<uint32_t> bell;    // counts
  std::atomic<uint32_t> asleep;  // 1: who rings must wake it
  cpu_set_t cores;               // where it may run
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> done;
  uint64_t sequence;
  CommOp op;
  ProcessId process;
  char text[240];
};

Board::Board(MPI_Comm host) {
  int local_size = 0, world_size = 0;
  MPI_Comm_size(host, &local_size);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  slots_.resize(static_cast<size_t>(world_size));
  void* memory = nullptr;
  MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
  if (MPI_Win_allocate_shared(sizeof(Slot), 1, MPI_INFO_NULL, host, &memory, &window_) != MPI_SUCCESS) {
    window_ = MPI_WIN_NULL;
    return;
  }
  mine_ = new (memory) Slot{};
  mine_->process = own_process();
  sched_getaffinity(0, sizeof mine_->cores, &mine_->cores);
  std::vector<int> local(static_cast<size_t>(local_size)), world(local.size());
  std::iota(local.begin(), local.end(), 0);
  MPI_Group host_group, world_group;
  MPI_Comm_group(host, &host_group);
  MPI_Comm_group(MPI_COMM_WORLD, &world_group);
  MPI_Group_translate_ranks(host_group, local_size, local.data(), world_group, world.data());
  MPI_Group_free(&host_group);
  MPI_Group_free(&world_group);
  for (int r = 0; r < local_size; ++r) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* slot = nullptr;
    MPI_Win_shared_query(window_, r, &bytes, &unit, &slot);
    slots_[world[r]] = static_cast<Slot*>(slot);
  }
  MPI_Barrier(host);  // nobody reads a slot before it has been made
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const Slot* slot : slots_)
    if (slot) CPU_OR(&cores, &cores, &slot->cores);
  const int count = CPU_COUNT(&cores);  // 0 on machines with more than fit the set
  crowded_ = count > 0 && local_size > count;
}

void Board::free() {
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  mine_ = nullptr;
  std::fill(slots_.begin(), slots_.end(), nullptr);
}

void Board::started(const std::string& group, const CommCall& call) {
  if (!mine_) return;
  const std::string text = fmt::format("{} in group '{}'", describe(call), group);
  mine_->version.fetch_add(1);
  std::atomic_thread_fence(std::memory_order_release);
  mine_->sequence = call.sequence;
  mine_->op = call.op;
  mine_->done = 0;
  const size_t length = std::min(text.size(), sizeof mine_->text - 1);
  std::memcpy(mine_->text, text.data(), length);
  mine_->text[length] = 0;
  mine_->version.fetch_add(1, std::memory_order_release);
}

void Board::finished(const CommCall& call) {
  if (mine_ && mine_->sequence == call.sequence && mine_->op == call.op) mine_->done = 1;
}

uint32_t Board::bell() const {
  return mine_ ? mine_->bell.load() : 0;
}

void Board::ring(int world_rank) {
  Slot* slot = slots_[world_rank];
  if (!slot) return;
  // Counted first: a rank that has not said yet that it sleeps finds the number changed and does not.
  slot->bell.fetch_add(1);
  if (slot->asleep.load()) futex_wake_all(slot->bell, FutexScope::machine);
}

void Board::sleep(uint32_t heard, std::chrono::nanoseconds longest) {
  mine_->asleep.store(1);
  futex_wait(mine_->bell, heard, FutexScope::machine, longest);
  mine_->asleep.store(0);
}

std::string Board::process_words(int world_rank) const {
  const Slot* slot = slots_[world_rank];
  if (!slot) return "";
  const std::string state = state_of(slot->process);
  return state.empty() ? "" : fmt::format("process {} {}", slot->process.pid, state);
}

void Board::kill_others(bool all) const noexcept {
  for (const Slot* slot : slots_)
    if (slot && slot != mine_ && (all || is_stopped(slot->process))) kill_process(slot->process);
}

std::string Board::whereabouts(int world_rank) const {
  const Slot* slot = slots_[world_rank];
  if (!slot) return "is on another host";
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const uint32_t before = slot->version.load(std::memory_order_acquire);
    char text[sizeof slot->text];
    std::memcpy(text, slot->text, sizeof text);
    const bool done = slot->done;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 || slot->version.load() != before) continue;
    if (before == 0) return "has made no call yet";
    text[sizeof text - 1] = 0;
    return done ? fmt::format("has finished the call that it started last, {}", text)
                : fmt::format("has not finished the call that it started last, {}", text);
  }
  return "is busy starting calls";
}

}  // namespace triax
