#pragma once

#include <string>
#include <string_view>

#include "core/shape.h"
#include "parallel/layout.h"

namespace triax {

/// What a logical tensor of a checkpoint holds: a weight, or one of AdamW's two moments of it.
enum class StateKind { weight, exp_avg, exp_avg_sq };

/// "weight", "exp_avg", "exp_avg_sq".
std::string_view name_of(StateKind kind);
/// The kind of that name; throws an Error that lists the valid ones.
StateKind state_kind(std::string_view name);

/// Where a logical tensor stands in the view and what its hash is keyed by: "model/<name>",
/// "optimizer/<name>/exp_avg", "optimizer/<name>/exp_avg_sq".
std::string logical_path(StateKind kind, std::string_view name);

/// One box of a logical fp32 tensor in this rank's host memory. For saving, the pieces of all ranks cover
/// every logical tensor exactly once; for loading any boxes will do, on any rank, overlapping or not. Empty
/// boxes are allowed.
struct StatePiece {
  StateKind kind = StateKind::weight;
  std::string name;       ///< logical name, as in ParamSpec
  Shape global;           ///< shape of the whole logical tensor
  Box box;                ///< the part that lies at `data`
  float* data = nullptr;  ///< contiguous, row-major, box.numel() elements; the caller's
};

}  // namespace triax
