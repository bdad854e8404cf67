#include "engine/config.h"

#include <limits>

#include "core/fields.h"

namespace triax {

const FieldTable<TrainingConfig>& fields_of(const TrainingConfig*) {
  static const FieldTable<TrainingConfig> table = [] {
    using C = TrainingConfig;
    constexpr double largest = std::numeric_limits<int32_t>::max();
    FieldTable<C> t;
    t.add("steps", &C::steps, "Steps of the whole job.").must_be_given().at_least(1).at_most(1e15);
    t.add("global_batch_size", &C::global_batch_size, "Sequences per step.")
        .must_be_given()
        .at_least(1)
        .at_most(largest);
    t.add("micro_batch_size", &C::micro_batch_size, "Sequences per micro-batch per data rank.")
        .must_be_given()
        .at_least(1)
        .at_most(largest);
    t.add("sequence_length", &C::sequence_length, "Tokens per sequence.").at_least(1).at_most(largest);
    t.add("precision", &C::precision,
          "Of weights and activations; bf16 keeps fp32 master weights and gradients.")
        .one_of({"fp32", "bf16"});
    t.add("recompute", &C::recompute,
          "What is computed again in the backward pass instead of kept: none, norms and activation functions "
          "alone; selective, the attention core, too; full, all but the layers' inputs (weight gradients are "
          "then not put off, also under zb-h1).")
        .one_of({"none", "selective", "full"});
    t.add("partition_activations", &C::partition_activations,
          "With recompute full: cut the kept inputs over the tensor group.");
    t.add("device", &C::device, "Where the ranks compute.").one_of({"auto", "cpu", "cuda"});
    t.add("cuda_graph", &C::cuda_graph,
          "Whether a GPU's steps are captured once and launched as one CUDA graph: auto, where that can be "
          "(one "
          "rank; the log says why not); on, or the job is refused; off.")
        .one_of({"auto", "on", "off"});
    t.add("deterministic", &C::deterministic,
          "With NCCL: add in rank order, so that bits do not depend on pipeline, schedule, virtual_stages, "
          "zero_stage, recompute, overlap_comm or transport. Everything else does so always.");
    t.add("stop_after_minutes", &C::stop_after_minutes,
          "Minutes after the start at which the job saves and ends with exit status 75, before a queue's "
          "limit "
          "does it; 0: never.")
        .at_least(0);
    t.add("on_nonfinite", &C::on_nonfinite,
          "When the loss or the gradient norm is not finite, no rank changes a weight; then the job stops "
          "with a "
          "report, or skips the step's update and goes on.")
        .one_of({"stop", "skip"});
    t.add("max_skipped_steps", &C::max_skipped_steps,
          "With on_nonfinite skip: steps in a row that may be skipped; at one more the job stops.")
        .at_least(1);
    t.add("threads", &C::threads, "Compute threads per rank; 0: the host's cores / its ranks, at least 1.")
        .at_least(0)
        .at_most(4096);
    return t;
  }();
  return table;
}

const FieldTable<LoggingConfig>& fields_of(const LoggingConfig*) {
  static const FieldTable<LoggingConfig> table = [] {
    using C = LoggingConfig;
    FieldTable<C> t;
    t.add("interval", &C::interval, "Steps between two lines on the console.").at_least(1);
    t.add("tensorboard", &C::tensorboard, "Write event files for TensorBoard.");
    t.add("check_replicas", &C::check_replicas,
          "Steps between two comparisons, by hash, of what several ranks hold (also at the start, and in "
          "every step "
          "that saves); a difference names rank and tensor and stops the job; 0: never.")
        .at_least(0);
    t.add("gradient_noise_scale", &C::gradient_noise_scale,
          "Steps between two measurements of the gradient noise scale, an estimate of the critical batch; "
          "needs "
          "parallel.data above 1; 0: never.")
        .at_least(0);
    t.add("trace", &C::trace,
          "Write a Chrome/Perfetto trace of a step, of all ranks, into <output_dir>/traces.");
    t.add("trace_steps", &C::trace_steps,
          "With trace: the steps, each traced into a file of its own; none: the second step of the run.")
        .at_least(1);
    t.add("watchdog_seconds", &C::watchdog_seconds,
          "How long a rank may wait for others in one operation before the job is ended with a report of "
          "which "
          "rank is missing (ten times as long for one that saves or loads); 0: for ever, for debuggers.")
        .at_least(0)
        .at_most(1e8);
    t.add("straggler_factor", &C::straggler_factor,
          "A rank whose computing takes more than this times the median of the other ranks of its pipeline "
          "stage "
          "is slow; above 1, or 0: ranks are not compared.")
        .at_least(0);
    t.add("straggler_window", &C::straggler_window, "Steps over which ranks' times are summed and compared.")
        .at_least(1);
    t.add("straggler_patience", &C::straggler_patience,
          "Windows in a row for which a rank is slow before it is named as a straggler.")
        .at_least(1);
    return t;
  }();
  return table;
}

const FieldTable<DebugConfig>& fields_of(const DebugConfig*) {
  static const FieldTable<DebugConfig> table = [] {
    using C = DebugConfig;
    FieldTable<C> t;
    t.add("dump_gradients_at", &C::dump_gradients_at,
          "Steps whose gradients, averaged over the batch and before clipping, are written to "
          "<output_dir>/gradients.")
        .at_least(1);
    t.add("dump_batches_at", &C::dump_batches_at, "Steps whose tokens are written to <output_dir>/batches.")
        .at_least(1);
    t.add("nonfinite_gradient_at", &C::nonfinite_gradient_at,
          "Steps at which the last rank's first gradient becomes NaN, to rehearse training.on_nonfinite.")
        .at_least(1);
    t.add("check_collectives", &C::check_collectives,
          "Compare the order of the ranks' calls to collectives while running.");
    return t;
  }();
  return table;
}

const FieldTable<RunConfig>& fields_of(const RunConfig*) {
  static const FieldTable<RunConfig> table = [] {
    using C = RunConfig;
    FieldTable<C> t;
    t.add("name", &C::name, "Name of the job.");
    t.add("output_dir", &C::output_dir, "Folder of everything that the run leaves behind.")
        .derived("runs/<name>");
    t.add("seed", &C::seed, "Initial weights, dropout and the order of samples are functions of it.")
        .at_least(0);
    t.add("model", &C::model, "The model's shape.");
    t.add("parallel", &C::parallel, "How the ranks are split.");
    t.add("training", &C::training, "How long, in what batches and how to compute.");
    t.add("optimizer", &C::optimizer, "How weights are updated.");
    t.add("lr_schedule", &C::lr_schedule, "The learning rate over the steps.");
    t.add("data", &C::data, "What to train on.");
    t.add("checkpoint", &C::checkpoint, "What is saved, and where to go on from.");
    t.add("logging", &C::logging, "What is reported while running.");
    t.add("debug", &C::debug, "Aids for checking a job.");
    return t;
  }();
  return table;
}

}  // namespace triax
