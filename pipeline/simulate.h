#pragma once

#include <vector>

#include "pipeline/action.h"

namespace triax {

/// Times in milliseconds of one micro-batch on one stage, or in one part of the model.
struct ActionTimes {
  double forward = 1;          ///< F
  double backward_input = 1;   ///< B; `backward` takes B + W
  double backward_weight = 1;  ///< W
  double message = 0;  ///< from the end of the work that makes it to the start of the work that needs it
};

/// Work of a stage, and when it was done (ms).
struct Span {
  Action action;
  double start, end;
};

/// When everything happens: simulated by simulate(), or taken from the trace of a real step.
struct Timeline {
  ScheduleShape shape;
  std::vector<std::vector<Span>> stages;  ///< work only, in order
  double makespan = 0;                    ///< from the first start of all to the last end
  /// The longest span of a stage from its first start to its last end.
  double cost = 0;
  /// Share of `cost` in which the stages do not work, on average: (cost - m (F + B + W)) / cost (Qi et al.,
  /// "Zero Bubble Pipeline Parallelism", 2024).
  double bubble = 0;
  std::vector<double> stage_bubbles;  ///< the same share of each stage: they differ where stages are uneven
};

/// Fills in what follows from the spans: makespan, cost and bubbles.
void measure(Timeline& timeline);

/// Runs a valid schedule on paper: work takes its time, a receive waits for its message, sends do not block.
/// `times` are those of every stage; of several chunks each takes its equal share of F, B and W.
Timeline simulate(const Schedule& schedule, const ActionTimes& times);
/// The same with the times of each part of the model (model_part()), of which `message` is that of its output
/// and of its input's gradient.
Timeline simulate(const Schedule& schedule, const std::vector<ActionTimes>& parts);

/// The mean times of each part of the model in a timeline. A backward that was not split counts as
/// backward_input. Messages take the least time that there was between two parts from the end of
/// the work that makes it to the start of the work that needs it, as the mean of both directions, from which
/// a difference between the stages' clocks falls out.
std::vector<ActionTimes> mean_times(const Timeline& timeline);

}  // namespace triax
