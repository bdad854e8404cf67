#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "comm/communicator.h"
#include "engine/append_file.h"
#include "engine/plan_check.h"
#include "engine/trainer.h"
#include "parallel/mesh.h"

namespace triax {

/// What a run leaves in its folder for those who look at it later, besides metrics.jsonl:
///
/// - summary.json, replaced atomically: grid, what was planned beside what was measured on the first rank of
///   each pipeline stage (memory by arena, bytes by group and operation), and what the start took;
/// - history.jsonl, a line for each start and each end of the job in this folder: time, step, grid, host, the
///   checkpoint it went on from, the outcome.
///
/// A disk that is full costs these, not the run: rank 0 reports it.
class RunRecord {
 public:
  /// `report`: gets a sentence when something can't be written, on rank 0.
  RunRecord(std::string dir, const Mesh& mesh, Communicator& world, AppendFile::Report report);

  /// A start of the job at `step` (done), `from` the folder of a checkpoint or empty.
  void begun(int64_t step, const std::string& from);
  /// Its end: "finished", "stopped", "interrupted", "fault". With a fault, its words.
  void ended(int64_t step, const std::string& outcome, const std::string& words = "");
  /// What the start took (StartupClock::over_ranks()); goes into the summary.
  void started(nlohmann::json startup) { startup_ = std::move(startup); }
  /// Writes summary.json. Collective.
  void summarise(int64_t step, const RankPlan& plan, const PlanCheck& counted, const Trainer& trainer);

 private:
  void note(nlohmann::json line);

  std::string dir_;
  const Mesh& mesh_;
  Communicator& world_;
  AppendFile::Report report_;
  std::unique_ptr<AppendFile> history_;  // rank 0's
  nlohmann::json startup_;
};

/// "2026-11-21T10:45:00Z", now.
std::string utc_now();

}  // namespace triax
