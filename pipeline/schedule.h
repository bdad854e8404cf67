#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/action.h"

namespace triax {

/// Makes the schedule that `shape` asks for. It is complete, messages included, and passes validate(). An
/// unknown name, or a shape that the schedule does not allow, is a usage error that lists what would do.
///
///   gpipe  all forwards, then all backwards (Huang et al., "GPipe", 2019); keeps m micro-batches
///   1f1b   stage i runs p - 1 - i forwards ahead, then one forward and one backward in turn (Narayanan et
///          al., "PipeDream-Flush" in "Memory-Efficient Pipeline-Parallel DNN Training", 2021); keeps
///          min(m, p - i) micro-batches
///   interleaved  1f1b over v chunks per stage: p micro-batches at a time go through chunk after chunk, and
///          stage i runs 2 (p - 1 - i) + (v - 1) p forwards ahead (Narayanan et al., "Efficient Large-Scale
///          Language Model Training on GPU Clusters", 2021); needs v > 1 and m divisible by p; keeps
///          min(m v, 2 (p - 1 - i) + (v - 1) p + 1) chunks' micro-batches
///   zb-h1  1f1b with its backward split: the weight half of stage i follows i micro-batches after the input
///          half (Qi et al., "Zero Bubble Pipeline Parallelism", 2024); keeps min(m, p) micro-batches, on
///          each stage what 1f1b keeps on the first
///
/// All run a chunk's forwards, backwards and weight halves in ascending micro-batch order, so that sums over
/// micro-batches have the same bits under every schedule.
Schedule make_schedule(const ScheduleShape& shape);

/// Forward passes alone, through the chunks of the same shape; passes validate().
Schedule make_evaluation(const ScheduleShape& shape);

/// The names that make_schedule() knows.
std::vector<std::string_view> schedule_names();

/// Throws a usage error, as make_schedule() would, when the shape can't be scheduled.
void check_shape(const ScheduleShape& shape);

/// Which part of the model chunk `chunk` of stage `stage` is: 0 holds the embedding, the last one the head.
inline int model_part(const ScheduleShape& shape, int stage, int chunk) {
  return chunk * shape.stages + stage;
}

/// Does this chunk's input come by message from the stage before it (and its input's gradient go back there)?
inline bool has_previous(const ScheduleShape& shape, int stage, int chunk) {
  return shape.stages > 1 && model_part(shape, stage, chunk) > 0;
}

/// Does this chunk's output go by message to the stage after it (and the gradient come back from there)?
inline bool has_next(const ScheduleShape& shape, int stage, int chunk) {
  return shape.stages > 1 && model_part(shape, stage, chunk) < shape.stages * shape.virtual_stages - 1;
}

/// Forwards go to the next stage, from the last one round to stage 0 and its next chunk; gradients go back.
inline int next_stage(const ScheduleShape& shape, int stage) {
  return (stage + 1) % shape.stages;
}
inline int previous_stage(const ScheduleShape& shape, int stage) {
  return (stage + shape.stages - 1) % shape.stages;
}

/// Is it work (forward or one of the backwards) rather than a message?
bool is_compute(ActionKind kind);

/// "recv_forward", ...
std::string_view name_of(ActionKind kind);
/// The kind of this name; nothing for other words.
std::optional<ActionKind> kind_of(std::string_view name);

/// "send_forward of micro-batch 3", with the chunk named where a stage has several.
std::string describe(const Action& action, const ScheduleShape& shape);

}  // namespace triax
