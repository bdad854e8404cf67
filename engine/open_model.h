#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "engine/job.h"
#include "parallel/param_store.h"

namespace triax {

/// Where a trained model lies, for commands that use it without training it.
struct ModelSource {
  std::string folder;                        ///< of the checkpoint
  RunConfig config;                          ///< the job that it comes from
  std::optional<CheckpointInfo> checkpoint;  ///< its manifest

  /// "runs/demo/checkpoints/step-00000100, step 100".
  std::string text() const;
};

/// What a path names: a run's folder or its checkpoints' folder (of both the newest complete checkpoint) or
/// one checkpoint. Only the manifest is read. Usage error when there is none, saying where it looked.
ModelSource open_model(const std::string& path);

/// Which ranks a model that is not trained runs on.
struct InferenceRanks {
  int launched = 0;   ///< processes that mpirun or srun started; 0: none
  int requested = 0;  ///< --ranks; 0: not given
  /// What becomes of ranks that no key gives a place: more tensor ranks, or (false) more data ranks. With
  /// tensor there is nothing for data ranks to do, and parallel.data must stay 1.
  bool to_tensor = true;
};

/// The source's job with `sets` over it ("parallel.tensor=2"), on a grid of its own: one rank unless sets and
/// ranks say otherwise, whatever grid trained it. Only keys that make a difference here may be set:
/// parallel.tensor, .pipeline and .data, training.precision, .threads, .sequence_length and
/// .micro_batch_size, and data. Usage error that lists every violation with the values that would do.
RunConfig inference_config(const ModelSource& source, const std::vector<std::string>& sets,
                           const InferenceRanks& ranks);

/// Fills this rank's weights, which are rounded when the store is in bf16 (then the rank's part is held once
/// more, in fp32, while it is read). Every byte of a checkpoint is checked. Collective.
void load_weights(const ModelSource& source, Communicator& world, ParamStore& params,
                  const LoadOptions& options = {});

}  // namespace triax
