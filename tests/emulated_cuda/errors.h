#pragma once

#include "include/cuda_runtime_api.h"

namespace emulated_cuda {

/// Keeps `error` for cudaGetLastError() of this thread and returns it.
cudaError_t failed(cudaError_t error);

/// What a kernel has left that failed while it ran: from then on every call of the process says it.
cudaError_t fault();
/// Whether the kernel `name` is to fail: see emulated_cuda_fail_kernel() of runtime.cpp.
void ran(const char* name);

}  // namespace emulated_cuda
