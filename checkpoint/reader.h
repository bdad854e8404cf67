#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/state.h"
#include "comm/communicator.h"

namespace triax {

/// The newest complete checkpoint of a run, if there is one, and what is wrong with those that were passed
/// over.
struct FoundCheckpoint {
  std::optional<CheckpointInfo> info;
  std::vector<std::string> problems;
};

/// Looks at the step folders in `dir`, newest step first, whatever `latest` says, and takes the first one
/// with a valid manifest and all files in their sizes. `skip`: folders that turned out to be damaged when
/// they were loaded.
FoundCheckpoint find_checkpoint(const std::filesystem::path& dir,
                                const std::set<std::filesystem::path>& skip = {});
/// The same for all ranks: rank 0 looks. Collective.
FoundCheckpoint find_checkpoint(Communicator& world, const std::filesystem::path& dir,
                                const std::set<std::filesystem::path>& skip = {});

/// read_manifest by rank 0 for all. Collective.
CheckpointInfo read_manifest(Communicator& world, const std::filesystem::path& folder);

/// How a rank loads.
struct LoadOptions {
  int threads = 1;  ///< that read and check this rank's files, each a file at a time
  /// Called about once a second, by one thread at a time, with the bytes that this rank has read and those
  /// that it has to read.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Fills the pieces from a checkpoint that any grid wrote; returns when all ranks have theirs. First every
/// byte of every file is checked, each file by one rank (checksum, hash of every box, identity), then each
/// rank reads the boxes that it needs and nothing else. Kinds and tensors that no piece asks for are not
/// read. Errors are thrown on all ranks: DamagedCheckpoint with file and tensor; Error when a tensor is not
/// in the checkpoint or has another shape there. On an error of the first phase the pieces are untouched.
/// `info` is the same on all ranks. Collective.
void load_checkpoint(Communicator& world, const CheckpointInfo& info, std::span<const StatePiece> pieces,
                     const LoadOptions& options = {});

/// read_manifest and load. Collective.
CheckpointInfo load_checkpoint(Communicator& world, const std::filesystem::path& folder,
                               std::span<const StatePiece> pieces, const LoadOptions& options = {});

}  // namespace triax
