#include "kernels/cpu/gemm_rounds.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace triax::cpu {

namespace {

/// Memory for the panels of two rounds, of the rank's thread and for its life: 4.5 MiB, in the shared cache.
constexpr int64_t round_units = gemm_max_depth * 768;

float* round_memory(int64_t half) {
  thread_local std::unique_ptr<float[]> memory;
  if (!memory) memory = std::make_unique_for_overwrite<float[]>(2 * round_units + 16);
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64) +
         half * round_units;
}

/// The most panels and pieces of a round; no panels where rounds don't pay. Wide rounds read or pack op(A)
/// less often, deep ones read C less often.
struct RoundSize {
  int64_t panels, pieces;
};
RoundSize round_size(const Gemm& op, const GemmCode& code, int threads) {
  const GemmPieces pieces(op.k, code.pair);
  if (threads == 1 || op.k == 0 || op.m < 2 * threads * code.rows || !copies_a(op, code.pair)) return {};
  const int64_t panels = pieces_of(op.n, code.columns), wide = gemm_round_columns / code.columns;
  const int64_t room = round_units / (pieces.depth / code.pair * code.columns);
  const bool rounded = op.c.dtype() != DType::f32;
  int64_t most =
      std::min({panels, wide, std::max(room / pieces.count, rounded ? int64_t{0} : 768 / code.columns)});
  if (rounded && most < std::min<int64_t>(panels, 192 / code.columns)) return {};
  most = pieces_of(panels, pieces_of(panels, most));
  return {most, std::min(pieces.count, room / most)};
}

/// The tasks of a product in the order in which threads take them: the packing of a round lies among the
/// multiplications of the round before. A task waits for others only if all of those were taken earlier.
class Rounds {
 public:
  Rounds(const Gemm& op, const GemmCode& code, const RoundSize& size, int threads);
  int64_t tasks() const { return static_cast<int64_t>(tasks_.size()); }
  void run(int64_t task);

 private:
  static constexpr int64_t group = 4;  // panels that a task packs
  struct Task {
    int64_t round;
    int64_t piece;  // to pack, or -1: multiply
    int64_t first;  // panel or block
  };
  /// How many of a round's tasks are done.
  struct Done {
    std::atomic<int64_t> packed = 0, multiplied = 0;
  };
  using Count = std::atomic<int64_t>;

  int64_t groups(const GemmRound& round) const {
    return pieces_of(pieces_of(round.columns, code_.columns), group);
  }
  void list_tasks();

  const Gemm& op_;
  const GemmCode& code_;
  int64_t strips_, blocks_;
  std::vector<GemmRound> rounds_;
  std::vector<Task> tasks_;
  std::vector<Done> done_;
  std::vector<Count> rounds_of_block_;  // that are done: the next adds to what they have written
};

/// Blocks of rows are as large as the second cache allows, but small enough for the threads to be done at the
/// same time, down to about two strips of the micro-kernel's rows.
int64_t blocks_of(int64_t strips, const GemmCode& code, int threads) {
  const int64_t least = pieces_of(strips, gemm_block_rows / code.rows);
  return pieces_of(std::max(least, std::min<int64_t>(8 * threads, strips / 2)), threads) * threads;
}

void wait_until(const std::atomic<int64_t>& count, int64_t enough) {
  while (count.load(std::memory_order_acquire) < enough) std::this_thread::yield();
}

Rounds::Rounds(const Gemm& op, const GemmCode& code, const RoundSize& size, int threads)
    : op_(op), code_(code), strips_(pieces_of(op.m, code.rows)), blocks_(blocks_of(strips_, code, threads)) {
  const GemmPieces pieces(op.k, code.pair);
  const int64_t step = size.panels * code.columns;
  for (int64_t column = 0; column < op.n; column += step)
    for (int64_t piece = 0; piece < pieces.count; piece += size.pieces)
      rounds_.push_back({column, std::min(step, op.n - column), piece,
                         std::min(size.pieces, pieces.count - piece),
                         round_memory(static_cast<int64_t>(rounds_.size()) % 2)});
  done_ = std::vector<Done>(rounds_.size());
  rounds_of_block_ = std::vector<Count>(static_cast<size_t>(blocks_));
  list_tasks();
}

void Rounds::list_tasks() {
  const auto pack = [&](int64_t round, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const GemmRound& r = rounds_[static_cast<size_t>(round)];
      tasks_.push_back({round, r.piece + i / groups(r), i % groups(r) * group});
    }
  };
  const auto packing = [&](int64_t round) {
    return round < static_cast<int64_t>(rounds_.size())
               ? rounds_[static_cast<size_t>(round)].pieces * groups(rounds_[static_cast<size_t>(round)])
               : 0;
  };
  pack(0, 0, packing(0));
  for (int64_t round = 0; round < static_cast<int64_t>(rounds_.size()); ++round)
    for (int64_t i = 0; i < blocks_; ++i) {
      pack(round + 1, i * packing(round + 1) / blocks_, (i + 1) * packing(round + 1) / blocks_);
      tasks_.push_back({round, -1, i});
    }
}

void Rounds::run(int64_t task) {
  const auto [number, piece, first] = tasks_[static_cast<size_t>(task)];
  const GemmRound& round = rounds_[static_cast<size_t>(number)];
  Done& done = done_[static_cast<size_t>(number)];
  if (piece >= 0) {
    if (number >= 2) wait_until(done_[static_cast<size_t>(number - 2)].multiplied, blocks_);
    code_.pack(op_, round, piece, first, std::min(first + group, pieces_of(round.columns, code_.columns)));
    done.packed.fetch_add(1, std::memory_order_release);
  } else {
    wait_until(done.packed, round.pieces * groups(round));
    Count& before = rounds_of_block_[static_cast<size_t>(first)];
    wait_until(before, number);
    const int64_t begin = first * strips_ / blocks_ * code_.rows;
    const int64_t end = std::min((first + 1) * strips_ / blocks_ * code_.rows, op_.m);
    if (begin < end) code_.multiply(op_, round, begin, end - begin);
    before.store(number + 1, std::memory_order_release);
    done.multiplied.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace

bool gemm_in_rounds(Device& device, const Gemm& op, const GemmCode& code) {
  const RoundSize size = round_size(op, code, device.threads().size());
  if (size.panels == 0) return false;
  Rounds rounds(op, code, size, device.threads().size());
  device.threads().run(rounds.tasks(), [&](int64_t task) { rounds.run(task); });
  return true;
}

}  // namespace triax::cpu
