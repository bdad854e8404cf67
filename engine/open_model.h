#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "data/tokenizer.h"
#include "engine/job.h"
#include "parallel/param_store.h"

namespace triax {

/// Where a trained model lies, for commands that use it without training it.
struct ModelSource {
  std::string folder;  ///< of the checkpoint, or of the Hugging Face model
  RunConfig config;    ///< the job that it comes from; of a Hugging Face model its shape
  std::optional<CheckpointInfo> checkpoint;  ///< its manifest; none: a Hugging Face model

  /// "runs/demo/checkpoints/step-00000100, step 100", "models/gpt2, Hugging Face".
  std::string text() const;
};

/// What a path names: a run's folder or its checkpoints' folder (of both the newest complete checkpoint), one
/// checkpoint, or a folder of Hugging Face (config.json and safetensors; its tokenizer is taken, too, where
/// it has one). No weight is read. Usage error when there is none, saying where it looked, or for a model
/// that Triax does not compute.
ModelSource open_model(const std::string& path);

/// The window in which a model is evaluated that no job has trained, in tokens: all that it remembers, yet
/// no more than 1024, since each token of a longer one would be paid for.
int64_t usual_window(const ModelConfig& model);

/// The tokenizer for a text that `source` is given: `wanted` where it is not empty, else the one of `config`.
/// Usage error, with what would do, when the model's own can't be read, or when none is recorded and its
/// tokens are hardly bytes: a folder of Hugging Face without one, a job on files of tokens with a vocabulary
/// that is not that of bytes.
std::unique_ptr<Tokenizer> tokenizer_for(const ModelSource& source, const RunConfig& config,
                                         const std::string& wanted);

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
