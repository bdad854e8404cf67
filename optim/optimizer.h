#pragma once

#include <cstdint>
#include <vector>

#include "optim/config.h"
#include "optim/zero.h"
#include "parallel/module.h"

namespace triax {

/// AdamW on fp32 weights (with bf16 weights on fp32 masters, which are part of the state), its state shared
/// by groups of N consecutive data ranks (the mesh's zero_shard) and replicated across the d / N groups. Per
/// step, in this order: sync_gradients(), add_squared_norm(), [the caller adds the sums of all ranks],
/// update(), publish_weights(). All of it is enqueued on the device; sums are in its memory.
///
/// A reduce-scatter within each group and an all-reduce of the slices across groups, which is a
/// reduce-scatter and an all-gather, would add (g0 + g1) + (g2 + g3), other bits for every N. The two
/// reduce-scatters are made one, over all of data, which adds in rank order; the all-gather across the
/// groups is left. The bytes are the same, (d - 1)/d + (d/N - 1)/d of the gradients, and so are the bits for
/// every N: N = d is plain ZeRO-1, without the gather; N = 1, everything on every rank, is ZeRO-0.
class Optimizer {
 public:
  /// Declares the moments' arena; commit() allocates it. `params` must be committed or final.
  Optimizer(Context& context, const OptimizerConfig& config);
  void commit() { state_.commit(); }
  const Arena& arena() const { return state_; }
  /// Writes the masters' initial values; the moments are zero. Nothing to do with fp32 weights.
  void initialise(uint64_t seed);
  /// After the masters have been written from outside: rounds them into the weights and hands those round, as
  /// update() does. Collective over the data axis; nothing to do with fp32 weights.
  void masters_changed();
  /// What this rank reduces, counts in the norm and writes into checkpoints: no element is another rank's
  /// too.
  const ZeroPartition& partition() const { return own_; }

  /// The gradients of the entries [first, end) are complete on this rank: starts what of sync_gradients() can
  /// start. The same calls in the same order on all ranks of the tensor and the data group. Needs no call:
  /// sync_gradients() does all that has not been started.
  void gradients_done(int first, int end);
  /// Sums gradients that live in several places, each once: copies of key-value heads over their tensor
  /// ranks, with sequence parallelism what the tensor ranks hold whole but saw a part of the rows for, the
  /// two uses of a tied weight, then the data axis; afterwards what this rank updates holds the
  /// gradient of the global batch.
  void sync_gradients();
  /// Forgets which gradients of a step were complete: for a step that was given up before
  /// sync_gradients() and begins anew.
  void forget_progress() { reset_progress(); }
  /// Until it is called with null: adds to `sum`, exactly, the squares of this data rank's own gradient,
  /// taken bucket by bucket right before the data axis reduces it; over the ranks of one data rank no element
  /// counts twice. Costs a pass over the gradients.
  void measure_own_norm(ExactSum* sum) { own_squares_ = sum; }
  /// Adds the squares of the gradients that this rank counts, exactly: no parameter's element is counted by
  /// two ranks. When a copy that does not count is not finite, the sum is not either.
  void add_squared_norm(ExactSum* sum);
  /// What the host has to put into the scalars of an update (counted from 1), before grad_scale.
  UpdateScalars scalars(int64_t update, double learning_rate) const;
  /// One AdamW step on updated(), rounded into the weights where these have masters, with the gradients
  /// clipped by the norm of all ranks. When `squared_norm` or `loss`, which all ranks have summed, is not
  /// finite, nothing changes, now and later, until the host clears scalars->skip. All in the device's memory.
  void update(UpdateScalars* scalars, const ExactSum* squared_norm, const ExactSum* loss);
  /// The weights that this rank has updated go to the ranks that share the state, and theirs come here;
  /// possibly later (ParamStore::weight waits). Collective.
  void publish_weights();

  /// What update() works on; partition() is a part of it.
  const ZeroPartition& updated() const { return updated_; }
  /// Whether the fp32 weights are masters apart from the weights that are computed with.
  bool has_masters() const { return master_ >= 0; }
  /// The fp32 weight of the element at a flat offset that lies in updated(); contiguous in a slice.
  float* master_at(int64_t flat) const {
    return has_masters() ? state_[master_].f32() + updated_.local(flat)
                         : context_->params.weights().f32() + flat;
  }
  /// First and second moment of the element at a flat offset that lies in updated(); the moments of a slice
  /// are contiguous.
  float* exp_avg_at(int64_t flat) const { return state_[exp_avg_].f32() + updated_.local(flat); }
  float* exp_avg_sq_at(int64_t flat) const { return state_[exp_avg_sq_].f32() + updated_.local(flat); }

 private:
  void sum_copies(size_t bucket);
  void sum_rows(size_t bucket);
  void sum_tied();
  void add_own_squares(size_t bucket);
  bool waits_for_tied(size_t bucket) const;
  void reset_progress();
  void start_reduction(size_t bucket);
  void finish_reduction(size_t bucket);
  /// The weight that is computed with, of the element at a flat offset; with masters.
  bf16* rounded_at(int64_t flat) const { return context_->params.weights().as<bf16>() + flat; }
  Tensor part(const Tensor& flat, size_t bucket, int first, int count = 1) const;

  Context* context_;
  OptimizerConfig config_;
  int data_, place_, shards_;  // d, r and N
  ZeroPartition own_, updated_;
  /// A bucket's way to the other ranks in the present step.
  struct Progress {
    int missing = 0;  // entries whose gradients are not complete
    bool started = false;
    Pending message;
  };
  std::vector<Progress> progress_;
  ExactSum* own_squares_ = nullptr;
  Arena state_;
  int exp_avg_ = -1, exp_avg_sq_ = -1, master_ = -1;
};

}  // namespace triax
