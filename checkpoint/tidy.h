#pragma once

#include <filesystem>
#include <iosfwd>

namespace triax {

/// `triax checkpoint prune`: deletes the complete checkpoints beyond the newest `keep` (at least 1) and what
/// dead writers left; never anything that is damaged, foreign or being written. `dry_run` only says what
/// would go. `path`: a run's folder or its checkpoints' folder. Returns 0, or 1 when something could not be
/// deleted.
int run_checkpoint_prune(const std::filesystem::path& path, int keep, bool dry_run, bool as_json,
                         std::ostream& out);

/// `triax checkpoint merge`: copies a checkpoint (of a run: the newest complete one) into the folder
/// `target`, with all boxes in one shard and each tensor in one piece; everything else, hashes included,
/// stays as it is. The source is checked while it is read, and `target` may not hold that step already.
/// Returns 0.
int run_checkpoint_merge(const std::filesystem::path& path, const std::filesystem::path& target, bool as_json,
                         std::ostream& out);

}  // namespace triax
