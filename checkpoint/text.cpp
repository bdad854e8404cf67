#include "checkpoint/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "checkpoint/folders.h"

namespace triax {

std::string readable_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

std::vector<std::filesystem::path> checkpoints_at(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) fail_usage("{} is no folder", path.string());
  const std::filesystem::path named = std::filesystem::absolute(path / "").parent_path();
  if (std::filesystem::exists(path / manifest_file, ignored) || as_step_folder(named)) return {path};
  for (const std::filesystem::path& dir : {path, path / "checkpoints"}) {
    std::vector<std::filesystem::path> out;
    for (const StepFolder& folder : step_folders(dir)) out.push_back(folder.path);
    std::reverse(out.begin(), out.end());
    if (!out.empty()) return out;
  }
  fail_usage("{} holds no checkpoint: neither {} nor a folder named step-NNNNNNNN is in it", path.string(),
             manifest_file);
}

CheckpointInfo newest_at(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> folders = checkpoints_at(path);
  std::string problems;
  for (; !folders.empty(); folders.pop_back()) {
    try {
      CheckpointInfo info = read_complete(folders.back());
      if (!problems.empty()) std::fputs(fmt::format("passed over: {}\n", problems).c_str(), stderr);
      return info;
    } catch (const DamagedCheckpoint& e) {
      problems += (problems.empty() ? "" : "\n") + std::string(e.what());
    }
  }
  throw DamagedCheckpoint(fmt::format("{} holds no complete checkpoint:\n{}", path.string(), problems));
}

}  // namespace triax
