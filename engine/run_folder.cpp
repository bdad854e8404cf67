#include "engine/run_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "checkpoint/agree.h"
#include "engine/job.h"

namespace triax {

namespace fs = std::filesystem;

namespace {

bool has_checkpoints(const std::string& dir) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir, none))
    if (entry.path().filename().string().rfind("step-", 0) == 0) return true;
  return false;
}

// The first free "<path>.old-N"; the rename keeps everything.
std::string move_aside(const std::string& path) {
  for (int n = 1;; ++n) {
    std::string target = fmt::format("{}.old-{}", path, n);
    if (fs::exists(target)) continue;
    fs::rename(path, target);
    return target;
  }
}

}  // namespace

RunFolder::RunFolder(const RunConfig& config, Communicator& world) : dir_(config.output_dir) {
  collectively(world, [&] {
    if (world.rank()) return;
    try {
      if (config.checkpoint.resume == "never" && has_checkpoints(config.checkpoint.dir)) {
        const bool inside = config.checkpoint.dir.rfind(dir_ + "/", 0) == 0;
        if (!inside) moved_to_ = move_aside(config.checkpoint.dir);
        if (fs::exists(dir_)) moved_to_ = move_aside(dir_);
      }
      fs::create_directories(dir_ + "/logs");
      fs::create_directories(config.checkpoint.dir);
    } catch (const fs::filesystem_error& error) {
      fail("the run's folder {} can't be made: {}; set output_dir to a folder that can be written", dir_,
           error.what());
    }
  });
  broadcast_bytes(world, moved_to_, 0);
}

void RunFolder::store_job(const RunConfig& config, Communicator& world) const {
  collectively(world, [&] {
    if (world.rank()) return;
    const std::string job = dir_ + "/job.yaml", temporary = job + ".new";
    std::ofstream out(temporary, std::ios::trunc);
    out << to_yaml(config);
    check(out.flush().good(), "can't write {}: {}", temporary, std::strerror(errno));
    fs::rename(temporary, job);
  });
}

std::string RunFolder::log_path(int rank) const {
  return fmt::format("{}/logs/rank-{:05}.log", dir_, rank);
}

std::string RunFolder::trace_path(int64_t step, int rank) const {
  return fmt::format("{}/traces/step-{:08}/rank-{:05}.json", dir_, step, rank);
}

std::string RunFolder::dump_path(const std::string& kind, int64_t step) const {
  return fmt::format("{}/{}/step-{:08}.h5", dir_, kind, step);
}

}  // namespace triax
