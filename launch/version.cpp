#include <thread>

#include "core/error.h"
#include "core/library.h"
#include "launch/commands.h"

namespace triax {

namespace {

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
  fmt::print("MPI        {}\n", !find_library("triax_mpi.so").empty()
                                    ? "built (opened when mpirun or srun starts triax)"
                                    : "not built: ranks are threads of one process");
  fmt::print("CUDA       {}\n", !find_library("triax_cuda.so").empty()
                                    ? "built (opened when a job says training.device: cuda)"
                                    : "not built");
  return exit_done;
}

}  // namespace triax
