#include <filesystem>
#include <thread>

#include "core/error.h"
#include "launch/commands.h"

namespace triax {

namespace {

// Whether a library of ours that is opened at run time was built.
bool has_library(const std::string& name) {
  std::error_code error;
  const auto home = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"lib", ".", "../lib/triax", "../lib"})
    if (std::filesystem::exists(home / folder / name, error)) return true;
  return false;
}

std::string processor_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return "AVX-512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
  return "neither AVX2 nor AVX-512";
#else
  return "no x86 vector extensions";
#endif
}

}  // namespace

int version() {
  fmt::print("triax {}\n", TRIAX_VERSION);
  fmt::print("compiler   {}\n", __VERSION__);
  fmt::print("processor  {} logical cores, {}\n", std::thread::hardware_concurrency(), processor_features());
  fmt::print("MPI        {}\n", has_library("triax_mpi.so")
                                    ? "built (opened when mpirun or srun starts triax)"
                                    : "not built: ranks are threads of one process");
  return exit_done;
}

}  // namespace triax
