#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "checkpoint/safetensors_folder.h"
#include "checkpoint/state.h"
#include "comm/communicator.h"
#include "engine/hf_config.h"
#include "engine/hf_names.h"
#include "parallel/param_store.h"

namespace triax {

/// A Hugging Face model's folder as logical parameters. Only headers are read when it is opened, and of the
/// weights what is asked for, a block at a time.
class PretrainedFolder {
 public:
  /// Throws Error(usage) for a model that Triax does not compute; Error naming every tensor that is missing,
  /// has another shape or a type that can't be read, or that the model does not have.
  explicit PretrainedFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return weights_.path(); }
  const ModelConfig& model() const { return config_.model; }
  const std::vector<std::string>& notes() const { return config_.notes; }
  /// The elements of a box of a logical parameter, row-major, as fp32.
  void read(const std::string& parameter, const Box& box, float* out) const;
  /// A tied model's folder may hold the head once more: throws Error when that is not the table, to the bit.
  void check_tied() const;

 private:
  struct Source {
    std::string tensor;
    HfPlace place;
    Shape global;
  };
  void find_tensors();
  void read_transposed(const Source& source, const Box& box, float* out) const;

  HfConfig config_;
  SafeTensorsFolder weights_;
  std::map<std::string, Source> sources_;  // by logical name
};

/// Fills the weights among `pieces` with those of `folder`, of which every rank reads its own; the model
/// there must be `model` (of which `from`, hidden_dropout and initializer_range are not compared). Errors are
/// thrown on all ranks. Collective.
void load_pretrained(Communicator& world, const std::filesystem::path& folder, const ModelConfig& model,
                     std::span<const StatePiece> pieces);

/// The same into a store of weights without an optimizer, in fp32 or rounded to bf16; host memory.
/// Collective.
void load_pretrained(Communicator& world, const std::filesystem::path& folder, const ModelConfig& model,
                     ParamStore& params);

/// The keys in which two models differ: "hidden_size: 24 is 32 there"; from, hidden_dropout and
/// initializer_range are not compared. One a line.
std::string model_differences(const ModelConfig& here, const ModelConfig& there);

}  // namespace triax
