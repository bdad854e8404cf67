#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/background.h"
#include "core/log.h"
#include "engine/restore.h"

namespace triax {

/// Saves a run's checkpoints, in the background or not, and does what checkpoint.on_error says when that
/// fails. Every rank has one and calls all that is collective at the same steps. A save that nobody finished
/// is given up when the saver goes.
class Saver {
 public:
  /// `extra`: what checkpoints tell besides, read on rank 0. `say`: rank 0's line on the console.
  Saver(const RunConfig& config, Communicator& world, Trainer& trainer, const Grid& grid,
        nlohmann::json extra, Log& log, std::function<void(const std::string&)> say);

  /// This step need not be saved: it is where the run resumed from.
  void already_saved(int64_t step) { saved_step_ = step; }
  /// checkpoint.every_minutes have passed since the last save.
  bool due_by_clock() const;
  /// This rank is still writing in the background (the vote `writing`).
  bool writing() const { return running_ && !running_->ready(); }

  /// After each step, when no rank is writing() any more: lets the save in the background move on.
  /// Collective.
  void advance(const RunPosition& now);
  /// Saves the state as it is. Waits first for a save that is still being written, and reports it. In the
  /// background, it returns when the state has been copied; `last`: it is complete when this returns, and a
  /// failure is thrown. Collective.
  void save(const RunPosition& now, bool last);
  /// The state as it is, to be looked at, as a checkpoint in `dir`, where no run looks for one; the latest
  /// alone is kept. Says where it is; a failure is only reported. Collective.
  void set_aside(const RunPosition& now, const std::string& dir);
  /// The step whose state is being written in the background, on all ranks; -1: none.
  int64_t running_step() const { return running_ ? running_->step() : -1; }
  /// What this rank's writing thread did when, in the last save in the background that ended.
  struct Written {
    int64_t step = -1;
    std::vector<BackgroundSave::Phase> phases;
  };
  const Written& written() const { return written_; }
  /// Saves tell what they do on the rank's own thread in `trace`, while that is on, on the track
  /// "checkpoint". Null: nothing.
  void set_trace(Trace* trace) { trace_ = trace; }
  /// Completes what is being written. Collective.
  void finish(const RunPosition& now);

 private:
  using Clock = std::chrono::steady_clock;
  SaveRequest request(const RunPosition& now) const;
  void start(const RunPosition& now);
  void save_now(const RunPosition& now);
  void failed(const AgreedError& error, const RunPosition& now, bool last);
  void report(const SaveResult& result, double seconds, double stall);
  bool leads() const { return world_.rank() == 0; }

  const RunConfig config_;
  Communicator& world_;
  Trainer& trainer_;
  nlohmann::json grid_, extra_;
  Log& log_;
  std::function<void(const std::string&)> say_;
  std::vector<StatePiece> pieces_;  // of the save that runs
  std::unique_ptr<BackgroundSave> running_;
  Clock::time_point started_ = Clock::now();  // the last save
  double stall_ = 0;                          // of the save that runs
  int64_t saved_step_ = -1;
  Written written_;
  Trace* trace_ = nullptr;
};

}  // namespace triax
