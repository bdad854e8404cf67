#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace triax {

/// "1.50 MiB".
std::string readable_bytes(int64_t bytes);

/// The checkpoints that a path on the command line means, oldest first: itself when it is a checkpoint
/// (has a manifest or looks like a step folder), else the step folders in it, else those in its subfolder
/// `checkpoints` (a run's output folder). Throws Error(usage) when there are none.
std::vector<std::filesystem::path> checkpoints_at(const std::filesystem::path& path);

/// The one checkpoint that a path means: itself, or the newest complete one of checkpoints_at(). Throws
/// DamagedCheckpoint when what it names is not complete.
CheckpointInfo newest_at(const std::filesystem::path& path);

}  // namespace triax
