#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/stage.h"
#include "optim/optimizer.h"
#include "pipeline/schedule.h"

namespace triax {

/// What ranks tell each other at the end of a step, besides the loss: sums over all ranks.
enum class Vote {
  interrupt,  ///< SIGINT
  terminate,  ///< SIGTERM
  user1,      ///< SIGUSR1
  time_up,    ///< training.stop_after_minutes have passed
  save,       ///< SIGUSR2, or checkpoint.every_minutes have passed
  writing,    ///< this rank's part of the last checkpoint is still being written
  count
};
using Votes = std::array<int64_t, static_cast<size_t>(Vote::count)>;

struct StepResult {
  double loss = 0;       ///< mean over the global batch's target tokens, before the update
  double grad_norm = 0;  ///< before clipping
  double learning_rate = 0;
  Votes votes{};  ///< summed over ranks: all ranks see the same
};

/// The loss or the gradient norm is not finite: all ranks throw it at the same step, before any update.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// One line of the memory table.
struct MemoryLine {
  std::string name;
  size_t bytes;
};

/// One rank of a training job: model, optimizer and pipeline stage on one device, and the step that runs
/// through them. Planning runs the very same code on a device that computes nothing (see plan.h), so that the
/// plan's bytes are those of the run.
class Trainer {
 public:
  /// `scratch_bytes`: capacity of the scratch stack, from a plan. Declares and commits all memory.
  Trainer(const RunConfig& config, Mesh& mesh, Device& device, const Kernels& kernels, size_t scratch_bytes);

  /// Initial weights from the seed.
  void initialise() {
    params_.initialise(static_cast<uint64_t>(config_.seed));
    optimizer_->initialise(static_cast<uint64_t>(config_.seed));
  }
  /// To be called when what pieces_to_load() lists has been written. Collective.
  void state_loaded() { optimizer_->masters_changed(); }
  /// Copies this rank's rows of a batch, [rows_per_step(), S + 1] int32 on the host, into the micro-batch
  /// buffers.
  void load_batch(const int32_t* rows);
  int64_t rows_per_step() const { return micro_batches_ * config_.training.micro_batch_size; }

  /// One training step (counted from 1) on the loaded batch. `my_votes` is asked as late as possible: after
  /// the backward passes. Collective. Throws DivergedError.
  StepResult step(int64_t step, const std::function<Votes()>& my_votes);
  /// Adds the loaded batch's token losses, of all ranks, to `sum`; nothing else changes. Collective.
  void evaluate(ExactSum& sum);
  /// The gradients of the last step before clipping: own slices of the mean over the global batch.
  Optimizer& optimizer() { return *optimizer_; }
  ParamStore& params() { return params_; }
  Stage& stage() { return *stage_; }
  Device& device() { return device_; }

  /// Later steps tell what they do when in `trace`, while that is on: the phases of the step on the track
  /// "step", the schedule's actions, and the rank's communication by group. Null: nothing.
  void set_trace(Trace* trace);

  /// Called between the gradients' reduction and the update; for dumps.
  void on_gradients(std::function<void()> hook) { gradient_hook_ = std::move(hook); }

  /// Host memory for a copy of what this rank saves, one piece behind the other: [elements] f32; of no
  /// elements unless checkpoint.async.
  Tensor snapshot() const { return snapshot_[0]; }

  std::vector<MemoryLine> memory() const;
  /// High-water mark of all arenas on this rank.
  size_t peak_bytes() const;
  size_t scratch_high_water() const { return scratch_.high_water(); }
  const Schedule& schedule() const { return schedule_; }

 private:
  struct Totals {
    double loss, squared_norm;
    Votes votes;
  };
  Totals sum_over_ranks(ExactSum loss, ExactSum squared_norm, const Votes& votes);
  /// The same token's loss is known to all tensor ranks; one of them counts it.
  bool counts_loss() const { return mesh_.last_stage() && mesh_.coordinate("tp") == 0; }

  RunConfig config_;
  Mesh& mesh_;
  Device& device_;
  ParamStore params_;
  Scratch scratch_;
  Context context_;
  int64_t micro_batches_;
  Schedule schedule_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<Optimizer> optimizer_;
  Arena inputs_, snapshot_;
  MicroBatches batch_;
  float loss_scale_;
  Trace* trace_ = nullptr;
  std::function<void()> gradient_hook_;
};

/// Grid of a job: tp innermost, then dp, then pp.
Grid grid_of(const RunConfig& config);
MeshNeeds mesh_needs(const RunConfig& config);

}  // namespace triax
