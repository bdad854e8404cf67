#pragma once

#include <string>
#include <vector>

namespace triax {

/// What a pipeline stage does next. A schedule is a list of these per stage; the executor is one switch over
/// the kind.
enum class ActionKind {
  recv_forward,     ///< wait for the input of (micro_batch, chunk) from the stage before it
  forward,          ///< run the chunk's modules; its activations go into a slot
  send_forward,     ///< hand the output on to the next chunk
  recv_backward,    ///< wait for the output's gradient from the next chunk
  backward,         ///< both halves: gradient of the input and of the weights
  backward_input,   ///< B of zero-bubble schedules
  backward_weight,  ///< W of zero-bubble schedules; frees the slot
  send_backward,    ///< hand the input's gradient back
};

struct Action {
  ActionKind kind;
  int micro_batch;  ///< 0 ..
  int chunk;        ///< model chunk of this stage, 0 .. virtual_stages - 1
  bool operator==(const Action&) const = default;
};

/// What to generate. Chunk v of stage p is the model's part v * stages + p.
struct ScheduleShape {
  std::string name;  ///< gpipe | 1f1b | interleaved | zb-h1
  int stages = 1;
  int virtual_stages = 1;
  int micro_batches = 1;
  bool operator==(const ScheduleShape&) const = default;
};

/// The lists of actions of all stages. Model part 0 has no recv_forward and no send_backward, the last part
/// no send_forward and no recv_backward; between two chunks on the same stage (stages == 1) there are none
/// either: what a chunk makes is taken by the next one before another is made.
struct Schedule {
  ScheduleShape shape;
  std::vector<std::vector<Action>> stages;
  bool forward_only = false;  ///< an evaluation: nothing goes backward, and no activations are kept
};

}  // namespace triax
