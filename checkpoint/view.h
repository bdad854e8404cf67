#pragma once

#include <filesystem>

#include "checkpoint/manifest.h"

namespace triax {

/// Writes <folder>/checkpoint.h5: each tensor of `info` as an HDF5 virtual dataset at its logical path, made
/// of the boxes that the shards hold (named relative to the folder, so that it can be moved), fill value NaN,
/// and the root attributes step, consumed_samples, id and format_version. `folder` is where the files are
/// now; the shards need not exist yet. Returns its record for the manifest.
FileRecord write_view(const std::filesystem::path& folder, const CheckpointInfo& info);

}  // namespace triax
