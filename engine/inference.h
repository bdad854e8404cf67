#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/trainer.h"
#include "model/inference_part.h"

namespace triax {

/// What a rank's memory is declared for.
struct InferenceShape {
  int64_t batch = 1;      ///< B: sequences of a pass, at most
  int64_t sequence = 1;   ///< S: their tokens, at most
  int64_t positions = 0;  ///< of the key-value cache; 0: no cache
};

/// One rank of a model that is not trained: its weights, its pipeline stage's part of the modules, and for
/// generation a key-value cache. Memory is declared, then committed, as the Trainer's; planning runs the very
/// same code (plan_inference). Activations between stages go as they are: a pass is a forward, and a stage
/// goes on with the next one while the stage behind it still computes.
class InferenceModel {
 public:
  /// `scratch_bytes`: from plan_inference().
  InferenceModel(const RunConfig& config, Mesh& mesh, Device& device, const Kernels& kernels,
                 const InferenceShape& shape, size_t scratch_bytes);

  ParamStore& params() { return params_; }
  const InferenceShape& shape() const { return shape_; }

  /// The next tokens of the sequence, at positions [position, position + ids.size()), at most `sequence` of
  /// them; what stood there before is forgotten. `logits`: [V] on the host, gets the logits after the last of
  /// them, in fp32, on all ranks of the last stage; empty: not wanted. All ranks hand in the same ids.
  void extend(std::span<const int32_t> ids, int64_t position, std::span<float> logits);
  /// Adds the losses of `batch` sequences of `sequence` tokens to `loss`, on every tensor rank of the last
  /// stage; negative targets have none.
  void add_loss(const int32_t* ids, const int32_t* targets, int64_t batch, int64_t sequence, ExactSum& loss);
  /// Returns when everything that was sent has been received.
  void finish();

  std::vector<MemoryLine> memory() const;
  size_t peak_bytes() const;
  size_t scratch_high_water() const { return scratch_.high_water(); }

 private:
  void run(Pass& pass);

  Mesh& mesh_;
  Device& device_;
  int64_t hidden_, vocabulary_;
  InferenceShape shape_;
  DType dtype_;
  ParamStore params_;
  Scratch scratch_;
  Context context_;
  InferencePart part_;
  Arena cache_, inputs_, messages_;
  Tensor ids_, targets_, logits_, loss_, received_, outgoing_[2];
  Pending sent_[2];
  int next_ = 0;
};

/// What one rank of it needs.
struct InferencePlan {
  size_t scratch_bytes = 0;
  std::vector<MemoryLine> memory;
  size_t cache_bytes = 0;
};
/// mesh_needs() of a model that is not trained.
MeshNeeds inference_needs(const RunConfig& config);
/// For passes of any number of sequences up to shape.batch without a cache, and of shape.sequence tokens.
InferencePlan plan_inference(const RunConfig& config, int rank, const InferenceShape& shape);

}  // namespace triax
