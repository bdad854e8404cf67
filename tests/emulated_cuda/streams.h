#pragma once

#include <functional>

#include "cuda_runtime_api.h"

namespace emulated_cuda {

/// Does `work` in the stream's order: at once, unless something on it is deferred (stream.h).
void run_on(cudaStream_t stream, std::function<void()> work);
/// The same, or, while this thread captures `stream`, keeps the work for the graph.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
bool capturing(cudaStream_t stream);
/// Returns when no stream of the process has anything to do.
void wait_for_all();

/// Counts a call of the library's; see emulated_cuda_calls() of captures.cpp. `function` is never freed.
void called(const char* function);
/// Counts a call that waits, allocates or frees: an error, which also ends the capture, while this thread of
/// the host captures a stream (cudaStreamCaptureModeThreadLocal refuses them on a GPU).
cudaError_t called_outside_of_captures(const char* function);
/// Makes the next `calls`-th kept call of this thread an error that ends its capture; 0: none.
void break_capture(int calls);

}  // namespace emulated_cuda
