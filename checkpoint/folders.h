#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace triax {

/// "step-00000100".
std::string step_folder_name(int64_t step);

/// A folder whose name says that it is a checkpoint; whether it is complete is another question.
struct StepFolder {
  std::filesystem::path path;
  int64_t step = 0;
  bool previous = false;  ///< "step-00000100.previous": set aside while another takes its place
};

/// What a path's last name says; none when it is not "step-<digits>" or "step-<digits>.previous".
std::optional<StepFolder> as_step_folder(const std::filesystem::path& path);

/// The step folders of a run's checkpoint folder, newest step first. A folder that does not exist has none.
std::vector<StepFolder> step_folders(const std::filesystem::path& dir);

/// What is wrong when a folder is called "step-<digits>" after another step than its manifest's; empty:
/// nothing.
std::string wrong_name(const CheckpointInfo& info);

/// The manifest of a folder whose files are all there with their sizes; their content is not read. Throws
/// DamagedCheckpoint, also when the folder has the name of another step, and Error when they can't be read.
CheckpointInfo read_complete(const std::filesystem::path& folder);

/// The hidden folder a checkpoint is written to before it gets its name. While it lives it holds an flock on
/// the folder, so that others see whether its writer is alive; where a filesystem has no such locks, a
/// temporary folder counts as abandoned a day after its last change.
class TemporaryFolder {
 public:
  TemporaryFolder(const std::filesystem::path& dir, int64_t step, const std::string& id);
  ~TemporaryFolder();  ///< removes the folder unless it was committed
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Makes the content durable and gives the folder its name, atomically. A folder that has the name already
  /// is replaced when it is good (its content is verified), and kept as damaged-<name>-<id> when it is not;
  /// a sentence about that goes to `warnings`. Returns the final path.
  std::filesystem::path commit(std::vector<std::string>& warnings);

 private:
  std::filesystem::path dir_, path_;
  std::string name_, id_;
  int lock_ = -1;
  bool committed_ = false;
};

/// Deletes complete checkpoints older than the newest `keep` (0: keeps all), never the newest complete one,
/// never `just_saved`, nothing that is damaged or foreign. Failures become sentences in `warnings`. Returns
/// the names of the folders that went; with `dry_run`, of those that would go.
struct Retention {
  bool dry_run = false;
  bool verify =
      false;  ///< reads what stays in full: one whose content is damaged does not count among `keep`
};
std::vector<std::string> apply_retention(const std::filesystem::path& dir, int keep,
                                         const std::filesystem::path& just_saved,
                                         std::vector<std::string>& warnings, Retention mode = {});

/// Renames the step folders from `first_step` on to "abandoned-<name>", with a number behind it where that is
/// taken, and lets `latest` name the newest one that is left (or removes it): a run that starts from an older
/// state leaves them behind. Returns the new names.
std::vector<std::string> set_aside(const std::filesystem::path& dir, int64_t first_step);

/// Deletes what dead runs left: temporary folders whose writer's lock is gone, and half-deleted checkpoints.
void remove_stale(const std::filesystem::path& dir, std::vector<std::string>& warnings);

/// Deletes a checkpoint so that it is never seen half deleted: hides it by a rename first.
void remove_folder(const std::filesystem::path& folder);

}  // namespace triax
