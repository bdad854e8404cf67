#include "engine/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

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

// What the ranks of an earlier start that failed left for each other (comm/watchdog.h).
void remove_signs(const std::string& logs) {
  std::vector<fs::path> signs;
  for (const auto& entry : fs::directory_iterator(logs))
    if (entry.path().filename().string()[0] == '.') signs.push_back(entry.path());
  for (const fs::path& sign : signs) fs::remove(sign);
}

}  // namespace

void FolderLock::take(const std::string& dir) {
  release();
  file_ = open((dir + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) return;  // whether the folder can be written is found out by what the run needs
  // Ranks whose launcher was killed may take a moment to follow it.
  for (int tries = 0; flock(file_, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // no locks on this filesystem
    if (tries == 20) {
      release();
      fail_usage(
          "output_dir: {}: another job is running in this folder; stop it first, or give this one an "
          "output_dir of its own",
          dir);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void FolderLock::release() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

RunFolder::RunFolder(const RunConfig& config, Communicator& world) : dir_(config.output_dir) {
  collectively(world, [&] {
    if (world.rank()) return;
    try {
      if (fs::exists(dir_)) lock_.take(dir_);
      if (config.checkpoint.resume == "never" && has_checkpoints(config.checkpoint.dir)) {
        const bool inside = config.checkpoint.dir.rfind(dir_ + "/", 0) == 0;
        if (!inside) moved_to_ = move_aside(config.checkpoint.dir);
        if (fs::exists(dir_)) moved_to_ = move_aside(dir_);
        lock_.release();
      }
      fs::create_directories(dir_ + "/logs");
      fs::create_directories(config.checkpoint.dir);
      if (!lock_.taken()) lock_.take(dir_);
      remove_signs(dir_ + "/logs");
      start_id_ = fmt::format("{:x}", std::chrono::system_clock::now().time_since_epoch().count());
    } catch (const fs::filesystem_error& error) {
      fail("the run's folder {} can't be made: {}; set output_dir to a folder that can be written", dir_,
           error.what());
    }
  });
  broadcast_bytes(world, moved_to_, 0);
  broadcast_bytes(world, start_id_, 0);
}

void RunFolder::store_job(const RunConfig& config, Communicator& world) const {
  collectively(world, [&] {
    if (world.rank()) return;
    const std::string job = dir_ + "/job.yaml", temporary = job + ".new";
    std::ofstream out(temporary, std::ios::trunc);
    out << to_yaml(config);
    const bool written = out.flush().good();
    check(written, "can't write {}: {}", temporary, std::strerror(errno));
    fs::rename(temporary, job);
  });
}

std::string RunFolder::log_path(int rank) const {
  return fmt::format("{}/logs/rank-{:05}.log", dir_, rank);
}

std::string RunFolder::trace_path(int64_t step) const {
  return fmt::format("{}/traces/step-{:08}.json", dir_, step);
}

std::string RunFolder::dump_path(const std::string& kind, int64_t step) const {
  return fmt::format("{}/{}/step-{:08}.h5", dir_, kind, step);
}

}  // namespace triax
