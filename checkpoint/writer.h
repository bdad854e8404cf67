#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "comm/communicator.h"

namespace triax {

/// What to save and where. All fields but `pieces` are read on rank 0 alone, and `step` must agree.
struct SaveRequest {
  std::filesystem::path dir;  ///< of the run's checkpoints; made when it is not there
  int64_t step = 0;
  int64_t consumed_samples = 0;
  std::string config;  ///< the effective configuration, YAML
  nlohmann::json grid = nlohmann::json::object();
  /// Anything else to remember; `triax checkpoint ls` shows "loss" when it is there.
  nlohmann::json extra = nlohmann::json::object();
  std::span<const StatePiece> pieces;  ///< this rank's; unchanged until the call returns
  int keep = 0;                        ///< complete checkpoints that stay; 0: all
};

/// What came of it, on every rank (the lists on rank 0 alone).
struct SaveResult {
  std::filesystem::path folder;
  int64_t bytes = 0;                  ///< of all files
  std::vector<std::string> removed;   ///< checkpoints that retention deleted
  std::vector<std::string> warnings;  ///< what failed after the checkpoint was safe
};

/// Saves a checkpoint; returns when it is complete and durable. Each rank writes one shard into a temporary
/// folder and fsyncs it; rank 0 adds view and manifest, renames the folder, replaces `latest` and applies
/// retention. A failure on any rank is thrown on all, with rank, file and the system's reason; the folder is
/// removed and older checkpoints stay as they are. Collective over `world`.
SaveResult save_checkpoint(Communicator& world, const SaveRequest& request);

}  // namespace triax
