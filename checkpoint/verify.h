#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace triax {

/// What a full check of one checkpoint found.
struct VerifyReport {
  CheckpointInfo info;                ///< empty when the manifest is not valid
  int files = 0;                      ///< files that were read
  int64_t bytes = 0;                  ///< bytes that were read
  std::vector<std::string> problems;  ///< one sentence each, naming file and tensors; empty: all is well
};

/// Checks a checkpoint folder completely, without MPI or the model: manifest and its own checksum, size and
/// checksum of every byte of every file, hash of every box and tensor, identity of every shard. Files in the
/// folder that the manifest does not know are problems too.
VerifyReport verify_checkpoint(const std::filesystem::path& folder);

/// `triax checkpoint verify`: writes the report as text or JSON and returns the exit status, 0 or 1. `path`
/// is a checkpoint, or a folder of them: then each is checked.
int run_checkpoint_verify(const std::filesystem::path& path, bool as_json, std::ostream& out);

}  // namespace triax
