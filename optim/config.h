#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace triax {

template <class S>
class FieldTable;

/// The job file's `optimizer`.
struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 3e-3;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;    ///< matrices only
  double clip_grad_norm = 1.0;  ///< 0: no clipping
  bool operator==(const OptimizerConfig&) const = default;
};

/// The job file's `lr_schedule`. Steps count from 1.
struct LrScheduleConfig {
  std::string name = "cosine";  ///< constant | linear | cosine | wsd
  int64_t warmup_steps = 20;
  int64_t decay_steps = 0;  ///< default: training.steps
  int64_t decay_start =
      0;  ///< wsd: default 9/10 of decay_steps, not before warmup_steps; the others have 0 (null)
  double min_lr = 3e-4;
  bool operator==(const LrScheduleConfig&) const = default;
};

/// Of the schedule wsd, when the job names none: 9/10 of decay_steps, not before warmup_steps.
int64_t default_decay_start(const LrScheduleConfig& schedule);

const FieldTable<OptimizerConfig>& fields_of(const OptimizerConfig*);
const FieldTable<LrScheduleConfig>& fields_of(const LrScheduleConfig*);

}  // namespace triax
