#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace triax {

struct HfImport {
  std::filesystem::path folder;    ///< the checkpoint
  int64_t tensors = 0, bytes = 0;  ///< of the checkpoint
  /// What config.json says and a job decides, and why text can't be given to the model; a sentence each.
  std::vector<std::string> notes;
};

/// Turns a Hugging Face model's folder into a checkpoint of step 0: its weights, moments of zero. Block by
/// block, whatever the model's size. `sets`: "model.hidden_dropout=0.1" and the like, over what its
/// configuration says; the model's shape must stay. The checkpoint appears as a whole or not at all. Throws
/// Error(usage) when `out` is there and not empty (with `force`: and is no checkpoint).
HfImport import_hf(const std::filesystem::path& folder, const std::filesystem::path& out,
                   const std::vector<std::string>& sets, bool force);

}  // namespace triax
