#pragma once

#include <string>

#include "model/config.h"
#include "optim/optimizer.h"

namespace triax {

/// Ranks that ought to hold the same bits do not. All ranks throw it, with the same words.
class ReplicaError : public Error {
 public:
  using Error::Error;
};

/// What holds one rank's part of the state. All is the caller's.
struct ReplicaState {
  Device& device;
  Mesh& mesh;
  ParamStore& params;
  Optimizer& optimizer;
  const ModelConfig& model;
  bool computes = true;  ///< false in a plan: the messages alone
};

/// Compares, by logical hash, everything that several ranks hold: weights over the data axis; moments and
/// fp32 masters over the groups that replicate them (parallel.zero_shard_ranks, zero_stage 0); norms, biases
/// of rows, positions and copied key-value heads over the tensor axis; a tied table on the first and the last
/// stage. Reads the state once and sends two numbers for each tensor and group. When anything differs, tells
/// of the tensor that says most (one whose odd copy a majority tells; weights before the optimizer's state;
/// the model's order), which copy is the odd one (without a majority, all are named) and the first element
/// that differs, and throws ReplicaError whose message begins with `when`. Collective.
void compare_replicas(const ReplicaState& state, const std::string& when);

}  // namespace triax
