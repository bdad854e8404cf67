#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/config.h"
#include "data/config.h"
#include "model/config.h"
#include "optim/config.h"
#include "parallel/config.h"

namespace triax {

/// The job file's `training`.
struct TrainingConfig {
  int64_t steps = 0;
  int64_t global_batch_size = 0;  ///< sequences per step
  int64_t micro_batch_size = 0;   ///< sequences per micro-batch per data rank
  int64_t sequence_length = 128;
  std::string precision = "fp32";  ///< fp32 | bf16
  std::string recompute = "none";  ///< none | selective | full
  bool partition_activations = false;
  std::string device = "auto";        ///< auto | cpu | cuda
  std::string cuda_graph = "auto";    ///< auto | on | off: launch captured steps
  bool deterministic = false;         ///< on nccl, the bits of the other backends
  double stop_after_minutes = 0;      ///< save, and end with status 75; 0: never
  std::string on_nonfinite = "stop";  ///< stop | skip, when loss or gradient norm are not finite
  int64_t max_skipped_steps = 10;     ///< in a row, with skip
  int threads = 0;                    ///< compute threads per rank; 0: cores / ranks of the host, at least 1
  bool operator==(const TrainingConfig&) const = default;
};

/// The job file's `logging`.
struct LoggingConfig {
  int64_t interval = 1;  ///< steps between lines on the console
  bool tensorboard = true;
  bool trace = false;
  std::vector<int64_t> trace_steps;   ///< empty: the second step of each run
  int64_t check_replicas = 0;         ///< steps; 0: never
  int64_t gradient_noise_scale = 10;  ///< steps; 0: never
  double watchdog_seconds = 600;      ///< of one wait for other ranks; 0: no limit
  double straggler_factor = 1.5;      ///< 0: ranks are not compared
  int64_t straggler_window = 20;      ///< steps
  int straggler_patience = 3;         ///< windows in a row
  bool operator==(const LoggingConfig&) const = default;
};

/// The job file's `debug`.
struct DebugConfig {
  std::vector<int64_t> dump_gradients_at;      ///< steps
  std::vector<int64_t> dump_batches_at;        ///< steps
  std::vector<int64_t> nonfinite_gradient_at;  ///< steps
  bool check_collectives = false;
  bool operator==(const DebugConfig&) const = default;
};

/// A whole job file. load_job() (engine/job.h) returns it with every default and path resolved.
struct RunConfig {
  std::string name = "demo";
  std::string output_dir;  ///< absolute in a loaded job; default: runs/<name>
  int64_t seed = 1234;
  ModelConfig model;
  ParallelConfig parallel;
  TrainingConfig training;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  DataConfig data;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  DebugConfig debug;
  bool operator==(const RunConfig&) const = default;
};

const FieldTable<TrainingConfig>& fields_of(const TrainingConfig*);
const FieldTable<LoggingConfig>& fields_of(const LoggingConfig*);
const FieldTable<DebugConfig>& fields_of(const DebugConfig*);
const FieldTable<RunConfig>& fields_of(const RunConfig*);

}  // namespace triax
