#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/shard.h"
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
  std::span<const StatePiece> pieces;  ///< this rank's; they and their data unchanged until the save ends
  PieceSource source;                  ///< of the pieces' elements; none: StatePiece::data
  int keep = 0;                        ///< complete checkpoints that stay; 0: all
};

/// What came of it, on every rank (the lists on rank 0 alone).
struct SaveResult {
  int64_t step = 0;
  std::filesystem::path folder;
  int64_t bytes = 0;                  ///< of all files
  std::vector<std::string> removed;   ///< checkpoints that retention deleted
  std::vector<std::string> warnings;  ///< what failed after the checkpoint was safe
};

/// One save, in phases, so that those that only write can run in another thread than those that talk to the
/// other ranks:
///
///     Save save(world, request);   collective: checks that the pieces cover everything, makes the folder
///     save.write();                this rank's shard, durable
///     save.exchange();             collective: rank 0 learns what the shards hold
///     save.complete();             rank 0: view, manifest, rename, `latest`, retention
///     save.finish();               collective: all learn what came of it
///
/// A failure of a rank in write() or complete() is kept for the collective call after it, which throws it on
/// all ranks (AgreedError, with rank, file and the system's reason). A save that is destroyed before it was
/// completed leaves nothing behind, and older checkpoints as they are.
class Save {
 public:
  Save(Communicator& world, SaveRequest request);
  ~Save();
  Save(const Save&) = delete;
  Save& operator=(const Save&) = delete;

  void write();
  void exchange();
  void complete();
  SaveResult finish();
  /// From any thread: write() and complete() fail soon, because nobody waits for them any more.
  void give_up();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Saves a checkpoint; returns when it is complete and durable: all phases of a Save. Collective.
SaveResult save_checkpoint(Communicator& world, const SaveRequest& request);

}  // namespace triax
