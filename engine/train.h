#pragma once

#include <atomic>
#include <chrono>
#include <csignal>

#include "comm/communicator.h"
#include "comm/watchdog.h"
#include "engine/config.h"
#include "engine/crash.h"

namespace triax {

/// Set by a signal handler, read by every rank at the end of each step; the ranks agree on it, so that any
/// process may be the one that got the signal.
struct StopFlag {
  std::atomic<int> signal{0};  ///< SIGINT, SIGTERM, SIGUSR1, or 0
  std::atomic<int> saves{0};   ///< times that a checkpoint was asked for (SIGUSR2)
};

/// How a run that met no fault ended.
enum class Outcome {
  finished,     ///< all steps are done: exit 0
  interrupted,  ///< SIGINT; a checkpoint was saved: exit 130
  stopped,      ///< SIGTERM, SIGUSR1 or training.stop_after_minutes; a checkpoint was saved: exit 75
};

struct TrainRequest {
  bool accept_changes = false;  ///< resume although keys that change the mathematics differ
  bool quiet = false;           ///< no step lines
  bool plain = false;           ///< no progress bar, even if the output seems to be a terminal
  bool verbose = false;         ///< what the ranks write to their logs on the console too, and times of steps
  /// When the job began, for what the start took; the program's first moment, say.
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  /// Told of the run's folder; watches the ranks from outside. May be null.
  Watchdog* watchdog = nullptr;
  CrashReport* crash = nullptr;  ///< told of the ranks' logs; may be null
};

/// Runs a job on one rank, from resuming to the last checkpoint. `world` has the job's number of ranks;
/// `local_size` of them share this host, this one as `local_rank`. Collective; throws Error on a fault.
Outcome run_rank(const RunConfig& config, Communicator& world, int local_rank, int local_size,
                 const StopFlag& stop, const TrainRequest& request = {});

}  // namespace triax
