#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace triax::test {

namespace fs = std::filesystem;

inline constexpr const char* mpirun =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
    "mpirun --oversubscribe --bind-to none ";

inline bool have_mpirun() {
  return std::system("command -v mpirun >/dev/null") == 0;
}

/// For a program's environment: the library that it is to open for device: cuda (docs/gpu.md), of those in
/// lib/.
inline std::string device_library(const std::string& file) {
  return std::string("TRIAX_CUDA_LIBRARY=") + TRIAX_BINARY_DIR + "/lib/" + file + " ";
}

/// A folder with a job and a corpus, and runs of the program on them.
class JobRuns : public ::testing::Test {
 protected:
  explicit JobRuns(const std::string& job)
      : dir_(fs::temp_directory_path() / ("triax-jobs-" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    std::ofstream text(dir_ / "corpus.txt");
    for (int i = 0; i < 20000; ++i) text << static_cast<char>('a' + (i * i / 7 + i % 5) % 26);
    std::ofstream(dir_ / "job.yaml") << job;
  }
  ~JobRuns() override { fs::remove_all(dir_); }

  /// What a shell runs for triax() below.
  std::string command(const std::string& out, const std::string& arguments,
                      const std::string& launcher = "") const {
    return "cd " + dir_.string() + " && exec env " + launcher + TRIAX_BINARY_DIR + "/triax train job.yaml " +
           arguments + " --set output_dir=" + out + " >" + out + ".out 2>&1";
  }
  /// Runs the program on the job with `arguments` into the run folder `out`; returns the exit status.
  int triax(const std::string& out, const std::string& arguments, const std::string& launcher = "") const {
    const int status = std::system(command(out, arguments, launcher).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  std::string output(const std::string& out) const {
    std::ifstream in(dir_ / (out + ".out"));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// Loss and norm of each step.
  std::map<int, std::pair<double, double>> metrics(const std::string& out) const {
    std::map<int, std::pair<double, double>> lines;
    std::ifstream in(dir_ / out / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      lines[json["step"]] = {json["loss"], json["grad_norm"]};
    }
    return lines;
  }
  fs::path checkpoint(const std::string& out, int64_t step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08d", static_cast<int>(step));
    return dir_ / out / "checkpoints" / name;
  }
  nlohmann::json manifest(const fs::path& folder) const {
    std::ifstream in(folder / "manifest.json");
    return nlohmann::json::parse(in);
  }
  /// Logical hashes of all tensors of a checkpoint: equal hashes, equal bits.
  nlohmann::json tensors(const std::string& out, int64_t step) const {
    return manifest(checkpoint(out, step))["tensors"];
  }

  fs::path dir_;
};

}  // namespace triax::test
