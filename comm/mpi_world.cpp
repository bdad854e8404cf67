#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace triax {
namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end || value < 0 || value > 1 << 24) return std::nullopt;
  return static_cast<int>(value);
}

bool report(std::optional<int> rank, std::optional<int> size, int* rank_out, int* size_out) {
  if (!rank || !size || *size < 1 || *rank >= *size) return false;
  if (rank_out) *rank_out = *rank;
  if (size_out) *size_out = *size;
  return true;
}

}  // namespace

bool started_by_mpi(int* rank, int* size) {
  // Open MPI's mpirun, also with one process: the user has said so.
  if (report(number_in("OMPI_COMM_WORLD_RANK"), number_in("OMPI_COMM_WORLD_SIZE"), rank, size)) return true;
  if (std::getenv("SLURM_STEP_ID")) {
    // A step of srun. The batch script itself has a SLURM_PROCID but no step; a step of one task is a shell
    // or a program that happens to be started by srun, whatever its PMI variables say.
    const std::optional<int> tasks = number_in("SLURM_STEP_NUM_TASKS");
    return tasks && *tasks > 1 && report(number_in("SLURM_PROCID"), tasks, rank, size);
  }
  // MPICH's and Intel's mpirun, and other launchers that speak PMI or PMIx.
  if (report(number_in("PMI_RANK"), number_in("PMI_SIZE"), rank, size)) return true;
  return report(number_in("PMIX_RANK"), number_in("PMIX_SIZE"), rank, size);
}

std::unique_ptr<MpiWorld> make_mpi_world(const CommOptions& options) {
  namespace fs = std::filesystem;
  constexpr const char* file = "triax_mpi.so";
  const fs::path home = fs::read_symlink("/proc/self/exe").parent_path();
  const std::vector<fs::path> folders{home / "lib", home, home.parent_path() / "lib" / "triax",
                                      home.parent_path() / "lib"};
  std::string looked;
  for (const fs::path& folder : folders) {
    const fs::path path = folder / file;
    looked += (looked.empty() ? "" : ", ") + path.string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    // Global, because an MPI opens parts of itself later that look for its symbols. Never closed: an MPI
    // can't be started again in a process that has finalised it.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library)
      fail(
          "{} can't be opened: {}. It was built against an MPI library that is not found now: load that "
          "MPI's "
          "module or set LD_LIBRARY_PATH, or build {} against the MPI of this machine",
          path.string(), dlerror(), file);
    using Open = MpiWorld* (*)(const CommOptions*);
    const auto open = reinterpret_cast<Open>(dlsym(library, "triax_open_mpi_world"));
    check(open != nullptr,
          "{} has no triax_open_mpi_world: it is not the library that belongs to this program",
          path.string());
    return std::unique_ptr<MpiWorld>(open(&options));
  }
  fail(
      "this process was started as one of an MPI job, but the library {} is missing; looked for {}. Build it "
      "where an MPI is installed (Debian: libopenmpi-dev; CMake: -DTRIAX_MPI=ON), or start the program "
      "without "
      "mpirun or srun: its ranks are then threads",
      file, looked);
}

}  // namespace triax
