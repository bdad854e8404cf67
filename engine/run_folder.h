#pragma once

#include <string>

#include "comm/communicator.h"
#include "engine/config.h"

namespace triax {

/// An flock on "<folder>/.lock", which ends with its process, however that ends. Where a filesystem has no
/// such locks, nothing is locked and nothing refused.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock() { release(); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Waits two seconds at most; throws Error(usage) when another job still has the folder.
  void take(const std::string& dir);
  void release();
  bool taken() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

/// The folder of a run: made, or, with checkpoint.resume: never and checkpoints in it, moved aside first
/// ("<output_dir>.old-1"). Also writes job.yaml. Rank 0 keeps the folder locked while this lives: a
/// second job in it is refused with Error(usage). Collective.
class RunFolder {
 public:
  RunFolder(const RunConfig& config, Communicator& world);
  /// Writes job.yaml, the effective configuration: once it is sure that this job goes on here. Collective.
  void store_job(const RunConfig& config, Communicator& world) const;
  std::string log_path(int rank) const;
  std::string logs_dir() const { return dir_ + "/logs"; }
  /// Names this start of the job; the same on all ranks.
  const std::string& start_id() const { return start_id_; }
  std::string metrics_path() const { return dir_ + "/metrics.jsonl"; }
  std::string tensorboard_dir() const { return dir_ + "/tensorboard"; }
  /// "<output_dir>/traces/step-00000012.json".
  std::string trace_path(int64_t step) const;
  /// "<output_dir>/<kind>/step-00000012.h5".
  std::string dump_path(const std::string& kind, int64_t step) const;
  /// "<output_dir>/stopped": the state of a run that a fault of its numbers has stopped. No run resumes from
  /// it by itself.
  std::string stopped_dir() const { return dir_ + "/stopped"; }
  /// Where an older run was moved to; empty when there was none.
  const std::string& moved_to() const { return moved_to_; }

 private:
  std::string dir_, moved_to_, start_id_;
  FolderLock lock_;
};

}  // namespace triax
