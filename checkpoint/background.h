#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint/writer.h"

namespace triax {

/// A save whose files are written by a thread of its own while the rank goes on. Ranks talk to each other
/// only inside advance(), finish() and the constructor, called by the rank's own thread, all ranks alike: a
/// communicator belongs to one thread. So a save moves on when its ranks meet: once after all shards are
/// written, and once more after rank 0 has made them a checkpoint.
class BackgroundSave {
 public:
  /// Starts writing. `request.pieces` and their data must stay untouched until the save has ended or this
  /// object is gone. Collective; throws as Save's constructor.
  BackgroundSave(Communicator& world, const SaveRequest& request);
  /// Gives an unfinished save up and waits for the thread.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  int64_t step() const { return step_; }
  /// Nothing is being written on this rank: advance() will not wait here.
  bool ready() const { return idle_; }
  /// Waits for this rank's thread, then moves on to the next phase; the result when that was the last one.
  /// Throws what failed on any rank (AgreedError); the save has ended then. Collective.
  std::optional<SaveResult> advance();
  /// Waits for the end. Collective.
  SaveResult finish();
  /// Processor time of this rank's writing so far, for when it is ready.
  double cpu_seconds() const { return cpu_seconds_; }
  /// What this rank's thread did when, for when it is ready.
  struct Phase {
    const char* name;
    std::chrono::steady_clock::time_point begin, end;
  };
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  void start(const char* name, void (Save::*phase)());

  int64_t step_;
  Save save_;
  int phase_ = 0;
  std::atomic<bool> idle_ = false;
  double cpu_seconds_ = 0;
  std::vector<Phase> phases_;
  std::thread thread_;
};

}  // namespace triax
