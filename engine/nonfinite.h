#pragma once

#include <functional>
#include <string>

#include "model/config.h"
#include "optim/optimizer.h"

namespace triax {

/// What a search for numbers that are not finite looks at: one rank's step after its gradients have been
/// reduced and before any update. All is the caller's.
struct NonfiniteSearch {
  Device& device;
  Mesh& mesh;
  ParamStore& params;
  Optimizer& optimizer;
  const ModelConfig& model;
  int64_t first_sequence = 0;  ///< this data rank's first in the step's batch
  bool has_gradients =
      true;  ///< the gradients are still the step's; false: another step's that came after it
  /// Computes the loaded batch's forward and backward once more, telling `probe` what every module gives;
  /// afterwards the gradients are this rank's own, not yet summed with other ranks'.
  std::function<void(const Probe& probe)> replay;
};

/// What was found, the same on all ranks.
struct NonfiniteReport {
  /// A line each, what comes first in the order of cause first: "first: the weight layers.1.mlp.up.weight on
  /// rank 3: 1 of 2304 elements is not finite; the first, [3, 5], is inf".
  std::string text;
  bool in_weights = false;  ///< a weight is not finite, so that no later step will be
};

/// Where the numbers of a step stop being finite. In the order of cause: weights; outputs of layers (earliest
/// in the model, with micro-batch and sequence); the loss; gradients of layers' inputs (latest in the model,
/// where the backward begins); gradients of weights before their sum over ranks. When the replay is finite,
/// what the step itself had left: gradients before the sum where ranks still have them (each its own, outside
/// of the parts that it reduces) and after it; the report then says that the fault does not repeat itself.
/// That is lost where a device has gone on with the next step before the host learned of this one.
/// The cost is a step's and more, and nobody pays it but a step that has failed. Collective.
NonfiniteReport find_nonfinite(const NonfiniteSearch& search);

}  // namespace triax
