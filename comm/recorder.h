#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"
#include "core/trace.h"

namespace triax {

/// `split` makes groups: it appears in hang reports, never in the ledger.
enum class CommOp { all_reduce, all_gather, reduce_scatter, broadcast, send, recv, barrier, split };
std::string_view name_of(CommOp op);

/// What is compared between ranks and told in reports about one call.
struct CommCall {
  CommOp op = CommOp::barrier;
  DType dtype = DType::u8;
  int64_t count = 0;      ///< elements of the larger buffer
  int detail = 0;         ///< the ReduceOp, the root, the peer, or the color of a split
  uint64_t sequence = 0;  ///< number among the collectives of its group, or the messages to this peer, from 0
  std::source_location place{};
};
/// "all_reduce(sum) number 17 of f32[1000] at engine/trainer.cpp:120".
std::string describe(const CommCall& call);
/// The same of its parts; `type` is the dtype's name.
std::string describe(CommOp op, std::string_view type, int64_t count, int detail, uint64_t sequence,
                     std::string_view place);

/// A group of ranks as its members' records name it.
struct CommGroup {
  std::string name;
  int size = 1;
  std::vector<int> members;  ///< ranks of the world, by rank in the group; empty where nobody asks (planning)
};

/// Where a rank is, for those who look at it from outside: its watchdog, and a signal handler when it
/// crashes; atomics alone, therefore. Times are those of Recorder::Clock, in nanoseconds; texts are never
/// freed.
struct Position {
  std::atomic<int64_t> step{0};             ///< the step under way; 0 before the first one
  std::atomic<const char*> phase{nullptr};  ///< an announced phase that may take long, or null
  std::atomic<int64_t> phase_since{0};      ///< when that began
  std::atomic<int64_t> inside_since{0};     ///< when it entered the call or the wait it is in; 0: in none
  std::atomic<int64_t> outside_since{0};    ///< when it left the last one
  std::atomic<uint64_t> ticket{0};          ///< of the call it is in, or was in last
  std::atomic<CommOp> op{CommOp::barrier};  ///< of the call started last, and its place
  std::atomic<const char*> file{nullptr};
  std::atomic<uint32_t> line{0};
};

/// One rank's record of its communication, shared by all its communicators: the byte ledger and the ring
/// buffer of the latest calls that hang reports use. Only the rank itself calls what changes it; recent(),
/// position() and now_in() may be called from other threads at any time.
class Recorder {
 public:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    int64_t calls = 0;
    /// Payload that this rank sends, by the ring convention: all-reduce of S bytes over n is 2 (n-1)/n S,
    /// all-gather and reduce-scatter (n-1)/n of the full size, broadcast (n-1)/n S, send S, recv and barrier
    /// 0. Kept as a numerator over n so that it is exact.
    double bytes = 0;
    int64_t numerator = 0, denominator = 1;  ///< bytes = numerator / denominator
    /// Time that this rank spent inside of calls and waits, and time for which operations were at work while
    /// it computed: from the start of an operation's work to its end, or to the wait for it, without the time
    /// spent in other calls.
    double exposed_seconds = 0, hidden_seconds = 0;
  };
  /// What operations took on the clock of the rank's device, where the host only enqueues.
  struct DeviceSeconds {
    int64_t calls = 0;
    /// From where what was enqueued before is done to where what comes after may begin: the device waits for
    /// other ranks, and does its part.
    double held = 0;
    /// Of the operations that this rank's device did for all ranks of its group (ranks that are threads of
    /// one process): from where all buffers were ready to the end.
    double moving = 0;
  };
  struct Call : CommCall {
    std::shared_ptr<const CommGroup> group;
    uint64_t ticket = 0;
    Clock::time_point start{}, end{};  ///< `end` counts when `done`
    bool done = false;
  };

  /// (group, operation) -> totals since the last clear(). For the rank's own thread.
  const std::map<std::pair<std::string, CommOp>, Entry>& ledger() const { return ledger_; }
  void clear() { ledger_.clear(); }
  /// The latest calls, oldest first (at most 256).
  std::vector<Call> recent() const;
  /// One line on where this rank is: its oldest unfinished calls, or the last finished one.
  std::string whereabouts() const;
  const Position& position() const { return position_; }

  /// Called by Communicator: notes the start of a call, in which the rank is until leave(), and returns its
  /// ticket for finish().
  uint64_t begin(const std::shared_ptr<const CommGroup>& group, const CommCall& call, Clock::time_point now);
  void finish(uint64_t ticket, Clock::time_point now);
  /// Around a wait for a call that began earlier.
  void enter(uint64_t ticket, Clock::time_point now) {
    if (clock_) held_from(ticket);
    position_.ticket.store(ticket, std::memory_order_relaxed);
    position_.inside_since.store(now.time_since_epoch().count(), std::memory_order_release);
  }
  void leave(Clock::time_point now) {
    if (clock_) held_until_now();
    if (std::exchange(range_, false)) end_range();
    position_.outside_since.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    position_.inside_since.store(0, std::memory_order_release);
  }

  /// Calls that begin from now on are also timed by `clock`, that of the device whose memory their tensors
  /// lie in, until another one is set; null: none, as at the beginning. To be called between operations.
  void set_device_clock(DeviceClock* clock);
  /// Adds up what was timed since the last time, (group, operation) -> seconds; waits for the device.
  std::map<std::pair<std::string, CommOp>, DeviceSeconds> take_device_seconds();
  /// Around what this rank's device does of an operation for all ranks of a group; -1 where nobody times it.
  int begin_moving() { return clock_ ? clock_->mark() : -1; }
  void end_moving(int from, const std::string& group, CommOp op) {
    if (from >= 0) marks_.push_back({{group, op}, from, clock_->mark(), true});
  }

  /// The step that the rank takes from now on.
  void set_step(int64_t step) { position_.step.store(step, std::memory_order_relaxed); }
  /// Announces a phase in which others may have to wait for this rank for long ("saving a checkpoint"), or
  /// its end (null). The text is never freed. See CommPhase.
  void set_phase(const char* phase);
  /// Adds to an operation's times, and to the sum that exposed_seconds() gives.
  void add_seconds(const std::pair<std::string, CommOp>& operation, double exposed, double hidden);
  /// Of all operations since the recorder was made.
  double exposed_seconds() const { return exposed_; }
  double hidden_seconds() const { return hidden_; }

  /// Calls that begin while `trace` is on become spans, from begin() to finish(), on the track of their
  /// group, with the number of bytes that the rank sends; calls under way are forgotten when another one is
  /// set. Null: none.
  void set_trace(Trace* trace) {
    trace_ = trace;
    traced_.clear();
  }

 private:
  static constexpr size_t capacity = 256;
  /// Adds the call to the ledger; returns what it sends, in bytes.
  double count(const CommGroup& group, const CommCall& call);
  void held_from(uint64_t ticket);
  void held_until_now();

  std::map<std::pair<std::string, CommOp>, Entry> ledger_;
  mutable std::mutex mutex_;  // of the ring: other ranks look at it when something hangs
  std::vector<Call> ring_;
  uint64_t next_ = 0;
  Trace* trace_ = nullptr;
  std::map<uint64_t, int64_t> traced_;  // ticket -> span, of calls under way
  bool range_ = false;                  // the profiler's, of the call that the rank is in
  double exposed_ = 0, hidden_ = 0;
  struct Marks {
    std::pair<std::string, CommOp> operation;
    int from, to;
    bool moving;
  };
  DeviceClock* clock_ = nullptr;
  std::map<uint64_t, std::pair<std::string, CommOp>> clocked_;  // by ticket, calls under way
  std::vector<Marks> marks_;
  std::map<std::pair<std::string, CommOp>, DeviceSeconds> device_seconds_;
  uint64_t held_ticket_ = 0;
  int held_from_ = -1;  // a mark; -1: in no call
  Position position_;
};

/// A phase announced from here to the end of the block.
class CommPhase {
 public:
  CommPhase(Recorder& recorder, const char* phase)
      : recorder_(recorder), before_(recorder.position().phase.load()) {
    recorder_.set_phase(phase);
  }
  ~CommPhase() { recorder_.set_phase(before_); }
  CommPhase(const CommPhase&) = delete;
  CommPhase& operator=(const CommPhase&) = delete;

 private:
  Recorder& recorder_;
  const char* before_;
};

}  // namespace triax
