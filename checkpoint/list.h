#pragma once

#include <filesystem>
#include <iosfwd>

namespace triax {

/// `triax checkpoint ls`: all checkpoints of a run, oldest first: step, loss (when the writer noted it as
/// extra "loss"), size, when it was made, complete or what is wrong (manifest and sizes are checked, contents
/// are not). `path`: the run's folder, its checkpoints' folder, or one checkpoint. Returns the exit status.
int run_checkpoint_ls(const std::filesystem::path& path, bool as_json, std::ostream& out);

/// `triax checkpoint inspect`: grid, tensors, shapes and hashes of one checkpoint, the newest complete one
/// when `path` is a folder of them. Returns the exit status.
int run_checkpoint_inspect(const std::filesystem::path& path, bool as_json, std::ostream& out);

}  // namespace triax
