#include "checkpoint/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>

#include "checkpoint/file_io.h"
#include "checkpoint/shard.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

constexpr const char* temporary_prefix = ".tmp-step-";
constexpr const char* removed_prefix = ".removed-";

void ignore(std::error_code) {}

// Swaps two folders' names in one step where kernel and filesystem can.
bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

bool is_good(const fs::path& folder, std::string* problem) {
  try {
    const CheckpointInfo info = read_complete(folder);
    for (const FileRecord& f : info.files) verify_file(info, f);
    return true;
  } catch (const Error& e) {
    *problem = e.what();
    return false;
  }
}

// Opens a folder and takes its lock; -1 in *fd when the lock is another's. Returns false when this filesystem
// gives no locks on folders.
bool lock_folder(const fs::path& folder, int* fd) {
  *fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0) return true;
  if (::flock(*fd, LOCK_EX | LOCK_NB) == 0) return true;
  const bool taken = errno == EWOULDBLOCK;
  if (taken) {
    ::close(*fd);
    *fd = -1;
  }
  return taken;
}

// True when the writer of a temporary folder is gone.
bool is_abandoned(const fs::path& folder) {
  int fd = -1;
  const bool locks = lock_folder(folder, &fd);
  if (fd >= 0) ::close(fd);
  if (locks) return fd >= 0;
  std::error_code error;
  const auto written = fs::last_write_time(folder, error);
  return !error && fs::file_time_type::clock::now() - written > std::chrono::hours(24);
}

}  // namespace

std::string step_folder_name(int64_t step) {
  return fmt::format("step-{:08}", step);
}

std::optional<StepFolder> as_step_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.rfind("step-", 0) != 0) return std::nullopt;
  StepFolder folder{path, 0, false};
  const char* last = name.data() + name.size();
  const auto [rest, wrong] = std::from_chars(name.data() + 5, last, folder.step);
  folder.previous = std::string_view(rest, static_cast<size_t>(last - rest)) == ".previous";
  if (wrong != std::errc{} || (rest != last && !folder.previous)) return std::nullopt;
  return folder;
}

std::vector<StepFolder> step_folders(const fs::path& dir) {
  std::vector<StepFolder> out;
  std::error_code error, ignored;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (auto folder = as_step_folder(it->path()); folder && it->is_directory(ignored))
      out.push_back(std::move(*folder));
  check(!error || error == std::errc::no_such_file_or_directory, "can't list {}: {}", dir.string(),
        error.message());
  std::sort(out.begin(), out.end(), [](const StepFolder& a, const StepFolder& b) {
    if (a.step != b.step) return a.step > b.step;
    return a.previous != b.previous ? b.previous : a.path < b.path;
  });
  return out;
}

std::string wrong_name(const CheckpointInfo& info) {
  const auto named = as_step_folder(info.folder);
  if (!named || named->step == info.step) return "";
  return fmt::format("{} is the checkpoint of step {} under the name of another step", info.folder.string(),
                     info.step);
}

CheckpointInfo read_complete(const fs::path& folder) {
  CheckpointInfo info = read_manifest(folder);
  if (const std::string problem = wrong_name(info); !problem.empty()) throw DamagedCheckpoint(problem);
  for (const FileRecord& f : info.files) {
    const std::string path = (folder / f.name).string();
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error && error != std::errc::no_such_file_or_directory)
      fail("{} can't be examined: {}", path, error.message());
    if (error) throw DamagedCheckpoint(fmt::format("{} is missing{}", path, contents_of(info, f)));
    if (static_cast<int64_t>(size) != f.size)
      throw DamagedCheckpoint(
          fmt::format("{} has {} bytes instead of {}{}", path, size, f.size, contents_of(info, f)));
  }
  return info;
}

TemporaryFolder::TemporaryFolder(const fs::path& dir, int64_t step, const std::string& id)
    : dir_(dir), name_(step_folder_name(step)), id_(id) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) fail("can't create folder {}: {}", dir.string(), error.message());
  path_ = dir / fmt::format("{}{:08}-{}", temporary_prefix, step, id);
  if (!fs::create_directory(path_, error))
    fail("can't create folder {}: {}", path_.string(), error ? error.message() : "it exists");
  // Another run that cleans up here may have seen the folder before it was locked; then it is gone or taken.
  lock_folder(path_, &lock_);
  if (lock_ < 0 || !fs::exists(path_, error))
    fail(
        "{} was taken away by another run that writes to the same folder; give each run a checkpoint.dir of "
        "its own",
        path_.string());
}

TemporaryFolder::~TemporaryFolder() {
  if (!committed_) {
    std::error_code error;
    fs::remove_all(path_, error);
    ignore(error);
  }
  if (lock_ >= 0) ::close(lock_);
}

fs::path TemporaryFolder::commit(std::vector<std::string>& warnings) {
  fs::path final_path = dir_ / name_;
  sync_folder(path_);
  std::error_code error;
  fs::path replaced;
  if (fs::exists(final_path, error)) {
    std::string problem;
    if (!is_good(final_path, &problem)) {
      const fs::path aside = dir_ / fmt::format("damaged-{}-{}", name_, id_);
      warnings.push_back(fmt::format("{} was there and is damaged ({}); it is kept as {}",
                                     final_path.string(), problem, aside.filename().string()));
      rename_path(final_path, aside);
    } else if (exchange(path_, final_path)) {
      replaced = path_;
    } else {
      replaced = dir_ / (name_ + ".previous");
      fs::remove_all(replaced, error);
      rename_path(final_path, replaced);
    }
  }
  if (replaced != path_) rename_path(path_, final_path);
  committed_ = true;
  sync_folder(dir_);
  try {
    if (!replaced.empty()) remove_folder(replaced);
  } catch (const Error& e) {  // the checkpoint is there all the same
    warnings.push_back(e.what());
  }
  return final_path;
}

std::vector<std::string> apply_retention(const fs::path& dir, int keep, const fs::path& just_saved,
                                         std::vector<std::string>& warnings, Retention mode) {
  std::vector<std::string> removed;
  std::set<int64_t> complete;  // steps that are safe, so that a previous one of the same step may go
  for (const StepFolder& folder : step_folders(dir)) {
    try {
      try {
        read_complete(folder.path);
      } catch (const Error&) {
        continue;  // damaged, or of another version: not ours to delete
      }
      std::string problem;
      const bool stays = static_cast<int>(complete.size()) < std::max(keep, 1);
      if (mode.verify && stays && !is_good(folder.path, &problem)) {
        warnings.push_back(problem);
        continue;
      }
      const bool surplus = folder.previous ? complete.count(folder.step) > 0
                                           : keep > 0 && static_cast<int>(complete.size()) >= keep;
      if (!surplus || folder.path == just_saved || complete.empty()) {
        complete.insert(folder.step);
        continue;
      }
      if (!mode.dry_run) remove_folder(folder.path);
      removed.push_back(folder.path.filename().string());
    } catch (const std::exception& e) {
      warnings.push_back(e.what());
    }
  }
  return removed;
}

std::vector<std::string> set_aside(const fs::path& dir, int64_t first_step) {
  std::vector<std::string> names;
  std::string newest;
  for (const StepFolder& folder : step_folders(dir)) {
    if (folder.step < first_step) {
      if (newest.empty()) newest = folder.path.filename().string();
      continue;
    }
    const std::string name = "abandoned-" + folder.path.filename().string();
    fs::path target = dir / name;
    for (int n = 2; fs::exists(target); ++n) target = dir / fmt::format("{}-{}", name, n);
    rename_path(folder.path, target);
    names.push_back(target.filename().string());
  }
  if (names.empty()) return names;
  sync_folder(dir);
  std::error_code ignored;
  if (newest.empty())
    fs::remove(dir / "latest", ignored);
  else
    replace_file(dir / "latest", newest + "\n");
  return names;
}

void remove_stale(const fs::path& dir, std::vector<std::string>& warnings) {
  std::vector<fs::path> stale;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.rfind(removed_prefix, 0) == 0 ||
        (name.rfind(temporary_prefix, 0) == 0 && is_abandoned(it->path())))
      stale.push_back(it->path());
  }
  for (const fs::path& path : stale) {
    fs::remove_all(path, error);
    // Two that clean up at once take files from each other.
    if (error && error != std::errc::no_such_file_or_directory)
      warnings.push_back(fmt::format("can't delete {}: {}", path.string(), error.message()));
  }
}

void remove_folder(const fs::path& folder) {
  const fs::path hidden =
      folder.parent_path() / fmt::format("{}{}-{}", removed_prefix, folder.filename().string(), ::getpid());
  rename_path(folder, hidden);
  std::error_code error;
  fs::remove_all(hidden, error);
  if (error && error != std::errc::no_such_file_or_directory)
    fail("can't delete {}: {}", hidden.string(), error.message());
}

}  // namespace triax
