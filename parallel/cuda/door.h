#pragma once

#include "comm/device_link.h"
#include "core/device.h"
#include "core/trace.h"
#include "kernels/kernels.h"

// How the program gets at a GPU: what lib/triax_cuda.so answers to, beside triax_cuda_about()
// (kernels/cuda/about.h). The library is opened at run time by a program that links no CUDA; both are built
// from one tree, so that classes and exceptions pass.
extern "C" {

/// A new device of the calling thread (CudaDevice): GPU `ordinal` of those that are visible. The caller owns
/// it. Throws Error.
triax::Device* triax_cuda_open_device(int ordinal, int host_threads);
/// Its kernels.
const triax::Kernels* triax_cuda_kernels();
/// Where the profiler learns what the ranks do.
const triax::ProfilerRanges* triax_cuda_ranges();
/// How ranks of one process reach each other's memory.
triax::DeviceLink* triax_cuda_link();

}  // extern "C"
