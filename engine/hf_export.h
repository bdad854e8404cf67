#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/stored_type.h"

namespace triax {

struct HfExportOptions {
  StoredType type = StoredType::f32;
  int64_t max_shard_bytes = 5'000'000'000;  ///< of a file's tensors; a larger tensor has a file of its own
  bool force = false;  ///< replaces a model's folder (one with config.json) that is there
  std::function<void(const std::string& line)> progress;  ///< a line for each file
};

struct HfExport {
  std::string architecture;        ///< "LlamaForCausalLM"
  std::vector<std::string> files;  ///< all that were written
  int64_t tensors = 0, bytes = 0;  ///< of the weights
  std::vector<std::string> notes;  ///< what the folder does not say; a sentence each
};

/// Writes a checkpoint's weights as a folder that transformers loads: config.json, generation_config.json,
/// model.safetensors (or several files and their index), and the tokenizer's files. Tensor by tensor, each
/// compared with its logical hash on the way (DamagedCheckpoint then); the folder appears as a whole, by a
/// rename, or not at all. Throws Error(usage) when the folder is there and not empty.
HfExport export_hf(const CheckpointInfo& checkpoint, const std::filesystem::path& folder,
                   const HfExportOptions& options = {});

/// "5GB", "500MB", "2GiB", "100000" in bytes (units of 1000; GiB, MiB, KiB of 1024); throws Error(usage).
int64_t parse_size(const std::string& text);

}  // namespace triax
