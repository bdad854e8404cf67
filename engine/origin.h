#pragma once

#include <filesystem>

#include "checkpoint/manifest.h"

namespace triax {

/// Whether two paths lead to one folder, over links too; of folders that are gone, whether they would.
bool same_folder(const std::filesystem::path& a, const std::filesystem::path& b);

/// Whether `checkpoint`, a step folder or a link to one, lies in `dir`, a run's checkpoint folder.
bool lies_in(const std::filesystem::path& checkpoint, const std::filesystem::path& dir);

/// Whether the run that wrote `own` began with the checkpoint in `folder` (StartPoint::origin).
bool began_with(const CheckpointInfo& own, const std::filesystem::path& folder);

}  // namespace triax
