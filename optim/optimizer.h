#pragma once

#include <cstdint>

#include "optim/config.h"
#include "optim/zero.h"
#include "parallel/module.h"

namespace triax {

/// AdamW on fp32 weights, sharded over the data axis. Per step, in this order: sync_gradients(),
/// add_squared_norm(), [the caller adds the sums of all ranks], update(). ZeRO-0 reduces by the same
/// reduce-scatter and then gathers, so that both stages have the same bits.
class Optimizer {
 public:
  /// Declares the moments' arena; commit() allocates it. `params` must be committed or final.
  Optimizer(Context& context, const OptimizerConfig& config, int zero_stage);
  void commit() { moments_.commit(); }
  const Arena& arena() const { return moments_; }
  const ZeroPartition& partition() const { return own_; }

  /// Sums gradients that live in several places, each once: copies of key-value heads over their tensor
  /// ranks, the two uses of a tied weight, then the data axis; afterwards this rank's slices hold the
  /// gradient of the global batch.
  void sync_gradients();
  /// Adds the squares of the gradients that this rank counts, exactly: no parameter's element is counted by
  /// two ranks.
  void add_squared_norm(ExactSum& sum);
  /// One AdamW step (step counts from 1) on this rank's slices with gradients times grad_scale, then the
  /// weights are gathered over the data axis.
  void update(int64_t step, double learning_rate, double grad_scale);

  /// The partition that update() works on: own slices, or everything with ZeRO-0.
  const ZeroPartition& updated() const { return zero_stage_ ? own_ : all_; }
  /// First and second moment of the element at a flat offset that lies in updated(); the moments of a slice
  /// are contiguous.
  float* exp_avg_at(int64_t flat) const { return moments_[exp_avg_].f32() + updated().local(flat); }
  float* exp_avg_sq_at(int64_t flat) const { return moments_[exp_avg_sq_].f32() + updated().local(flat); }

 private:
  void sum_copies();
  void sum_tied();

  Context* context_;
  OptimizerConfig config_;
  int zero_stage_;
  ZeroPartition own_, all_;
  Arena moments_;
  int exp_avg_ = -1, exp_avg_sq_ = -1;
};

/// torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0.
double clip_factor(double norm, double max_norm);

}  // namespace triax
