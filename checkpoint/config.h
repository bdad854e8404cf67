#pragma once

#include <cstdint>
#include <string>

namespace triax {

template <class S>
class FieldTable;

/// The job file's `checkpoint`.
struct CheckpointConfig {
  std::string dir;           ///< absolute in a loaded job; default: <output_dir>/checkpoints
  int64_t interval = 100;    ///< steps; the last step always saves
  double every_minutes = 0;  ///< also after so much time; 0: never
  int64_t keep = 3;          ///< newest checkpoints that stay
  bool async = true;
  std::string on_error = "stop";  ///< stop (after a final attempt) | continue
  bool save_initial = false;      ///< also save the state a run starts from
  std::string resume = "auto";    ///< auto | never | a path (absolute in a loaded job)
  std::string load = "all";       ///< all | weights: what is taken of a checkpoint that `resume` names
  bool operator==(const CheckpointConfig&) const = default;
};

const FieldTable<CheckpointConfig>& fields_of(const CheckpointConfig*);

}  // namespace triax
