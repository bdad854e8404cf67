#pragma once

#include <nlohmann/json.hpp>

#include "core/log.h"
#include "engine/resume.h"
#include "engine/trainer.h"

namespace triax {

/// Where a run is: what a checkpoint tells besides the state.
struct RunPosition {
  int64_t step = 0, consumed_samples = 0;
  double loss = 0;
};

/// What a run starts from.
struct StartPoint {
  RunPosition position;
  /// The position's checkpoint is one of this run's own, so that it need not be saved again.
  bool saved = false;
  /// The checkpoint that checkpoint.resume named when the run began: {"folder", "id", "step"}; null without.
  /// Goes into the run's checkpoints.
  nlohmann::json origin;
  std::string folder;  ///< of the checkpoint; empty: the initial state
};

/// Fills the trainer with the state that checkpoint.resume and checkpoint.load ask for, or with the initial
/// one:
///
/// - auto: the newest complete checkpoint of the run; damaged ones are reported, kept and passed over.
/// - a path: that checkpoint, whole or its weights alone. Later ones in the run's own folder are set aside,
/// so
///   that they are not taken for this run's. But a run that began with a checkpoint of another folder and has
///   saved since then goes on with its own newest one, so that the same command continues a job that was
///   stopped, also when that folder is gone.
///
/// Changes of the configuration are checked against the three classes (engine/resume.h) and printed. Throws
/// Error(usage) for refused ones, DamagedCheckpoint for a damaged path. Collective.
StartPoint restore(const RunConfig& config, Communicator& world, Trainer& trainer,
                   const DataFingerprints& data, bool accept_changes, Log& log);

}  // namespace triax
