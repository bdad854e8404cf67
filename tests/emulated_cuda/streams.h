#pragma once

#include <functional>

#include "cuda_runtime_api.h"

namespace emulated_cuda {

/// Does `work` in the stream's order: at once, unless something on it is deferred (stream.h).
void run_on(cudaStream_t stream, std::function<void()> work);
/// Returns when no stream of the process has anything to do.
void wait_for_all();

}  // namespace emulated_cuda
