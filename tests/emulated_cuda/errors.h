#pragma once

#include "include/cuda_runtime_api.h"

namespace emulated_cuda {

/// Keeps `error` for cudaGetLastError() of this thread and returns it.
cudaError_t failed(cudaError_t error);

}  // namespace emulated_cuda
