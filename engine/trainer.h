#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/stage.h"
#include "engine/step_graph.h"
#include "engine/step_inputs.h"
#include "optim/noise_scale.h"
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
  /// The loss or the norm is not finite and training.on_nonfinite says skip: no weight and no moment has
  /// changed on any rank. What was found, for a person.
  bool skipped = false;
  std::string report;
  bool compared_replicas = false;    ///< before the update
  std::optional<NoiseSample> noise;  ///< when the step measured it; Trainer::noise() has taken it
};

/// Steps whose update was skipped; part of a run's position, because a resumed run must count as the
/// undisturbed one.
struct SkippedSteps {
  int64_t total = 0;
  int64_t in_row = 0;  ///< up to and with the last step
  bool operator==(const SkippedSteps&) const = default;
};

/// The loss or the gradient norm is not finite and the job is to stop: all ranks throw it at the same step,
/// before any update, with the same report of what was found.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// One line of the memory table.
struct MemoryLine {
  std::string name;
  size_t bytes;
  bool on_host = false;  ///< in the host's memory, also where the device is not the host
};

/// One rank of a training job: model, optimizer and pipeline stage on one device, and the step that runs
/// through them. Planning runs the very same code on a device that computes nothing (see plan.h), so that the
/// plan's bytes are those of the run.
class Trainer {
 public:
  /// `scratch_bytes`: capacity of the scratch stack, from a plan. Declares and commits all memory.
  Trainer(const RunConfig& config, Mesh& mesh, Device& device, const Kernels& kernels, size_t scratch_bytes);
  /// Waits for what is enqueued: its copies go to memory that goes now.
  ~Trainer();

  /// Initial weights from the seed.
  void initialise() {
    params_.initialise(static_cast<uint64_t>(config_.seed));
    optimizer_->initialise(static_cast<uint64_t>(config_.seed));
  }
  /// To be called when what pieces_to_load() lists has been written. Collective.
  void state_loaded();
  /// Where the host writes what state_loaded() is to find at `place`, [elements] of the device's memory:
  /// there where that is the host's, else in memory of the host until then.
  float* room_to_load(float* place, int64_t elements);
  /// Forgets such room: what was to be loaded could not be.
  void forget_loading() { loading_.clear(); }
  /// Memory of the host for elements that are read from the device; until the next call.
  std::vector<float>& host_copy() { return host_copy_; }
  /// Takes this rank's rows of a batch, [rows_per_step(), S + 1] int32 on the host, for the next step or
  /// evaluation; they may be changed on return.
  void load_batch(const int32_t* rows) { inputs_->load_batch(rows, config_.training.sequence_length); }
  int64_t rows_per_step() const { return micro_batches_ * config_.training.micro_batch_size; }

  /// One training step (counted from 1) on the loaded batch, with its outcome: enqueue() and outcome().
  /// Collective. When the loss or the norm is not finite, nobody updates anything; with
  /// training.on_nonfinite: skip the result says so, otherwise, after training.max_skipped_steps in a row, or
  /// when a weight is not finite, it throws DivergedError.
  StepResult step(int64_t step, const std::function<Votes()>& my_votes) {
    enqueue(step, my_votes);
    return outcome();
  }

  /// Whether enqueue() returns before the step is done, so that the next one can be enqueued before outcome()
  /// is asked for: on a device that works beside the host, but not for steps that the host has to look into
  /// before the update (on_gradients(), a comparison of replicas that the job's keys ask for). What such a
  /// step needs, and what waits for messages in between (groups of processes whose messages pass through the
  /// host), waits in enqueue().
  bool runs_ahead(int64_t step) const;
  struct Enqueued {
    bool counted = true;  ///< what the step sent is in the ledger, and nothing else is
    bool compared_replicas = false;
  };
  /// Begins a step on the loaded batch. One that runs_ahead() is complete on the device when its turn comes:
  /// clip factor and skip are decided there, and `my_votes` is asked now; after it at most one more may be
  /// enqueued (with a batch of its own, if that runs ahead too) before its outcome() is taken. Any other
  /// step, on the CPU all, is done on return, `my_votes` asked after the backward passes; nothing may be
  /// under way. Collective; DivergedError as step().
  Enqueued enqueue(int64_t step, const std::function<Votes()>& my_votes);
  /// Waits for the oldest step whose outcome has not been taken, and returns that; DivergedError as step().
  ///
  /// When that step is not finite, the device has changed no weight and no moment in it, nor in the step that
  /// was enqueued after it: from such a step on it updates nothing until the host has seen to it. The search
  /// for the cause computes the step once more with the very weights and batch that it had, and where the run
  /// goes on, the step after it is enqueued anew: state and numbers are those of a host that had waited.
  /// Collective.
  StepResult outcome();
  /// Steps that were enqueued and whose outcome has not been taken.
  int under_way() const { return static_cast<int>(flights_.size()); }
  /// See StepGraph::news().
  std::string graph_news() { return graph_->news(); }
  /// Adds the loaded batch's token losses, of all ranks, to `sum`; of what lasts from step to step nothing
  /// changes, but the gradients of the step before are lost. Collective.
  void evaluate(ExactSum& sum);
  /// The gradients of the last step before clipping: own slices of the mean over the global batch, until the
  /// next step or evaluation.
  Optimizer& optimizer() { return *optimizer_; }
  ParamStore& params() { return params_; }
  Stage& stage() { return *stage_; }
  Device& device() { return device_; }

  /// Later steps tell what they do when in `trace`, while that is on: the phases of the step on the track
  /// "step", the schedule's actions, and the rank's communication by group. Null: nothing.
  void set_trace(Trace* trace);

  /// Called between the gradients' reduction and the update; for dumps.
  void on_gradients(std::function<void()> hook) { gradient_hook_ = std::move(hook); }
  /// Called when the gradients of the ParamStore's entries [first, end) are complete on this rank and on
  /// their way to the others; a seam for tests that damage them. The look-ups' part of a tied table's
  /// gradient is apart from it yet (ParamStore::lookups_apart).
  void on_own_gradients(std::function<void(int first, int end)> hook) {
    own_gradient_hook_ = std::move(hook);
  }

  /// The steps that changed nothing: AdamW's bias correction counts the others, as torch.optim.AdamW, whose
  /// step() is not called for them, does.
  const SkippedSteps& skipped() const { return skipped_; }
  /// To be set with the state of a checkpoint.
  void set_skipped(const SkippedSteps& skipped) { skipped_ = skipped; }
  /// Averages of logging.gradient_noise_scale; part of a checkpoint, too.
  const NoiseAverages& noise() const { return noise_; }
  void set_noise(const NoiseAverages& noise) { noise_ = noise; }
  /// Compares what several ranks hold (engine/replicas.h); `step`, the one after which that is, goes into the
  /// message. Throws ReplicaError. Collective.
  void compare_replicas(int64_t step);

  /// Host memory for a copy of what this rank saves, one piece behind the other: [elements] f32; of no
  /// elements on the CPU without checkpoint.async.
  Tensor snapshot() const { return snapshot_[0]; }

  std::vector<MemoryLine> memory() const;
  /// High-water mark of all arenas on this rank.
  size_t peak_bytes() const;
  size_t scratch_high_water() const { return scratch_.high_water(); }
  const Schedule& schedule() const { return schedule_; }

 private:
  /// A step from enqueue() to outcome().
  struct Flight {
    int64_t step = 0;
    int block = 0;  // of StepInputs
    double learning_rate = 0;
    bool measures_noise = false;
    Votes votes{};
    std::function<void(int first, int end)> own_gradient_hook{};
    std::optional<StepResult> result{};  // of a step that was done at once
  };
  struct Totals {
    double loss, squared_norm;
    double own_squared_norms;  // of all data ranks; 0 in a step that does not measure them
    Votes votes;
  };
  /// What the ranks add up at the end of a step, in the device's memory; one message.
  struct StepSums {
    Tensor words;   // [words] i64: the sums, one behind the other, then the votes
    int64_t count;  // of the sums
    ExactSum *loss, *squared_norm, *own_squares;  // the last one null where the job does not measure it
  };
  bool measures_noise() const { return config_.logging.gradient_noise_scale > 0 && mesh_.size("dp") > 1; }
  NoiseSample noise_of(const Totals& totals) const;
  bool compares_replicas(int64_t step, const Votes& votes) const;
  Stage::Run training_run() const;
  void set_inputs(const Flight& flight);
  bool start(const Flight& flight, TracePhases& phase);
  void done_at_once(Flight& flight, const std::function<Votes()>& my_votes, TracePhases& phase);
  void add_gradients(const Flight& flight, TracePhases& phase);
  void sum_over_ranks(const Votes* votes);
  void update(TracePhases& phase);
  Totals totals_of(const int64_t* words) const;
  StepResult result_of(const Flight& flight, const Totals& totals) const;
  void finite(const Flight& flight, const Totals& totals, StepResult& result);
  StepResult not_finite(const Flight& flight, StepResult result);
  /// `tokens`: of a micro-batch.
  void declare_inputs(int64_t tokens);
  void declare_sums();
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
  bool ahead_;  // the device works beside the host
  std::unique_ptr<StepInputs> inputs_;
  Arena sums_arena_, outcomes_, snapshot_;
  std::vector<std::string> dropout_sites_;
  StepSums sums_{};
  float loss_scale_;
  std::unique_ptr<StepGraph> graph_;
  std::deque<Flight> flights_;
  std::vector<std::unique_ptr<DeviceEvent>> done_;  // by block of StepInputs: the step's end
  Trace* trace_ = nullptr;
  std::function<void()> gradient_hook_;
  std::function<void(int first, int end)> own_gradient_hook_;
  SkippedSteps skipped_;
  NoiseAverages noise_;
  std::deque<std::pair<float*, std::vector<float>>> loading_;  // room_to_load()
  std::vector<float> host_copy_;
  int64_t replicas_equal_at_ = -1;  // the step that compared them last
};

/// Grid of a job: tp innermost, then dp, then pp.
Grid grid_of(const RunConfig& config);
MeshNeeds mesh_needs(const RunConfig& config);

}  // namespace triax
