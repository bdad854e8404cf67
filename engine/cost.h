#pragma once

#include "engine/cluster.h"
#include "engine/job_plan.h"

namespace triax {

/// Estimated seconds of one training step, by parts that add up to `seconds`.
///
/// The model, from the plan alone: a kernel takes max(FLOPs / rate, bytes / memory bandwidth) (roofline);
/// what a rank sends takes its ledger's bytes / bandwidth of the slowest link in the group, and each call
/// 2(n-1) alpha for an all-reduce, (n-1) alpha for an all-gather or a reduce-scatter, ceil(log2 n) alpha for
/// a broadcast, alpha for a message (a ring); one all-reduce is 2(n-1)(alpha + S/(nB)). A stage's micro-batch
/// takes a third of its time for each of F, B and W; the schedule is simulated with the slowest stage's.
/// Nothing is taken to overlap.
struct StepCost {
  double seconds = 0;
  double compute = 0;  ///< kernels of the slowest stage's micro-batches
  double tensor = 0;   ///< its messages within the tensor group
  double bubble = 0;   ///< what the pipeline adds: waiting, and messages between stages
  double data = 0;     ///< after the backward: gradients and weights over the data axis, tied weights, norm
  double update = 0;   ///< gradient norm and optimizer
  /// The alphas among the above: what more bandwidth would not shorten.
  double latency = 0;
};

StepCost step_cost(const JobPlan& plan, const ClusterConfig& cluster);

/// Peak rate of matrix products that a job's precision gets on a device, FLOP per second.
double matmul_rate(const DeviceModel& device, const RunConfig& config);

}  // namespace triax
