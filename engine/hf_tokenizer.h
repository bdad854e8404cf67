#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"

namespace triax {

/// The files by which transformers turns text into the tokens that a job was trained on.
struct HfTokenizer {
  std::map<std::string, std::string> files;  ///< name and content
  std::optional<int32_t> end_of_text;
  /// Why there are none, or what transformers makes of them otherwise than Triax; a sentence each.
  std::vector<std::string> notes;
};

/// Copies of the files of `data.tokenizer`; for bytes of text a tokenizer.json whose tokens are the 256
/// bytes.
HfTokenizer hf_tokenizer(const RunConfig& job);

}  // namespace triax
