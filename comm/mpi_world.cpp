#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "comm/launched.h"
#include "core/error.h"
#include "core/library.h"

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

// What a launcher tells its processes, by environment variables.
struct Launcher {
  const char* name;
  const char *rank, *size, *local_rank, *local_size;  ///< the last two null where it does not tell
};

constexpr Launcher open_mpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher slurm{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};
constexpr Launcher hydra{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Launcher pmix{"PMIx", "PMIX_RANK", "PMIX_SIZE", nullptr, nullptr};

std::optional<LaunchedRank> told_by(const Launcher& launcher) {
  const std::optional<int> rank = number_in(launcher.rank), size = number_in(launcher.size);
  if (!rank || !size || *size < 1 || *rank >= *size) return std::nullopt;
  const auto local = [](const char* variable) { return variable ? number_in(variable).value_or(-1) : -1; };
  return LaunchedRank{launcher.name, *rank, *size, local(launcher.local_rank), local(launcher.local_size)};
}

// What a launcher tells without the number of its processes (PMIx itself has no variable for it) leaves the
// program no way to see what it is one of: as threads, each process would do the whole job.
void refuse_rank_without_size() {
  if (std::getenv("SLURM_STEP_ID")) return;  // Slurm tells, and a step of one task is no MPI job
  for (const Launcher& launcher : {hydra, pmix}) {
    const char *rank = std::getenv(launcher.rank), *size = std::getenv(launcher.size);
    if (!rank || !*rank) continue;
    fail_usage(
        "{}={} is set, as for a process of an MPI job, but {}: how many processes there are is not known "
        "(known: Open MPI's and MPICH's mpirun, srun). Start it by one of them (mpirun -n N, srun "
        "--mpi=pmix), "
        "or set {} to the number of processes; in a process that no launcher has started, unset {}",
        launcher.rank, rank,
        size && *size ? fmt::format("not as rank of {}={}", launcher.size, size)
                      : fmt::format("{} is not", launcher.size),
        launcher.size, launcher.rank);
  }
}

// How many processes the parent of this one has started that live: whichever of its threads did.
int siblings() {
  namespace fs = std::filesystem;
  int count = 0;
  std::error_code gone;  // the parent may end meanwhile
  fs::directory_iterator thread(fs::path("/proc") / std::to_string(getppid()) / "task", gone);
  for (; !gone && thread != fs::directory_iterator(); thread.increment(gone)) {
    std::ifstream children(thread->path() / "children");
    for (int pid; children >> pid;) ++count;
  }
  return count;
}

// MPI was opened, which starts when all processes have, or they were waited for.
std::atomic<bool> launch_outlasted = false;

}  // namespace

std::optional<LaunchedRank> launched_rank() {
  // Open MPI's mpirun, also with one process: the user has said so. First, because it may run inside of the
  // others.
  if (const auto told = told_by(open_mpi)) return told;
  if (std::getenv("SLURM_STEP_ID")) {
    // A step of srun. The batch script itself has a SLURM_PROCID but no step; a step of one task is a shell
    // or a program that happens to be started by srun, whatever its PMI variables say.
    const auto told = told_by(slurm);
    return told && told->size > 1 ? told : std::nullopt;
  }
  // MPICH's and Intel's mpirun, and other launchers that speak PMI or PMIx.
  for (const Launcher& launcher : {hydra, pmix})
    if (const auto told = told_by(launcher)) return told;
  return std::nullopt;
}

bool started_by_mpi(int* rank, int* size) {
  const std::optional<LaunchedRank> told = launched_rank();
  if (!told) {
    refuse_rank_without_size();
    return false;
  }
  if (rank) *rank = told->rank;
  if (size) *size = told->size;
  return true;
}

void outlast_launch() {
  using namespace std::chrono_literals;
  const auto told = launched_rank();
  if (!told || launch_outlasted.exchange(true)) return;
  int most = 0;
  for (auto since = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - since < 500ms;) {
    const int now = siblings();
    if (now < most || (told->local_size > 0 && now >= told->local_size))
      break;  // fewer: others leave already
    if (now > most) since = std::chrono::steady_clock::now();
    most = now;
    std::this_thread::sleep_for(20ms);
  }
  std::this_thread::sleep_for(100ms);  // the launcher writes down the last of them
}

std::unique_ptr<MpiWorld> make_mpi_world(const CommOptions& options) {
  constexpr const char* file = "triax_mpi.so";
  std::string looked;
  if (const auto path = find_library(file, &looked); !path.empty()) {
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
    launch_outlasted = true;
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
