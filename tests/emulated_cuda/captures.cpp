// Captures, graphs, counts of calls and NVTX ranges: see streams.h.

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "include/cuda_runtime.h"
#include "include/nvtx3/nvToolsExt.h"
#include "streams.h"

using Calls = std::vector<std::function<void()>>;

struct CUgraph_st {
  Calls calls;
};
struct CUgraphExec_st {
  Calls calls;
};

namespace emulated_cuda {

namespace {

/// A thread captures one stream at a time, which nobody else uses meanwhile.
struct Capture {
  cudaStream_t stream = nullptr;
  bool broken = false;
  Calls kept;
};
thread_local Capture t_capture;
thread_local int t_break_after = 0;
thread_local std::string t_refused;

struct Counts {
  std::mutex mutex;
  std::map<std::string, long> calls;
};
Counts& counts() {
  static Counts all;
  return all;
}

}  // namespace

void called(const char* function) {
  const std::lock_guard lock(counts().mutex);
  ++counts().calls[function];
}

cudaError_t called_outside_of_captures(const char* function) {
  called(function);
  if (!t_capture.stream) return cudaSuccess;
  t_capture.broken = true;
  return failed(cudaErrorStreamCaptureUnsupported);
}

// Whether this call is the one that emulated_cuda_refuse() has named.
bool refuses(const char* function) {
  if (t_refused != function) return false;
  t_refused.clear();
  return true;
}

void break_capture(int calls) {
  t_break_after = calls;
}

bool capturing(cudaStream_t stream) {
  return stream && stream == t_capture.stream;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> call) {
  if (const cudaError_t error = fault()) return error;
  if (!capturing(stream)) {
    run_on(stream, std::move(call));
    return cudaSuccess;
  }
  if (t_break_after > 0 && --t_break_after == 0) t_capture.broken = true;
  if (t_capture.broken) return failed(cudaErrorStreamCaptureInvalidated);
  t_capture.kept.push_back(std::move(call));
  return cudaSuccess;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

/// How often the library has called the runtime's `function`, "kernel" for its own launches; null: anything.
extern "C" long emulated_cuda_calls(const char* function) {
  const std::lock_guard lock(counts().mutex);
  long sum = 0;
  for (const auto& [name, count] : counts().calls)
    if (!function || name == function) sum += count;
  return sum;
}

/// The `calls`-th call that the calling thread captures from now on fails, and with it the capture.
extern "C" void emulated_cuda_break_capture(int calls) {
  break_capture(calls);
}

/// The next call of `function` (cudaStreamEndCapture, cudaGraphInstantiate) by the calling thread fails.
extern "C" void emulated_cuda_refuse(const char* function) {
  t_refused = function;
}

namespace {

/// Names of ranges in the order of their begins, each behind as many spaces as it lies in others.
struct Ranges {
  std::mutex mutex;
  std::string text;
};
Ranges& ranges() {
  static Ranges all;
  return all;
}
thread_local int t_depth = 0;

}  // namespace

/// The ranges of all threads since the last call, a line each; "-" where one was ended that nobody began.
extern "C" const char* emulated_cuda_ranges() {
  static thread_local std::string text;
  const std::lock_guard lock(ranges().mutex);
  text = std::exchange(ranges().text, "");
  return text.c_str();
}

int nvtxRangePushA(const char* message) {
  const std::lock_guard lock(ranges().mutex);
  ranges().text += std::string(static_cast<size_t>(t_depth), ' ') + message + "\n";
  return t_depth++;
}
int nvtxRangePop() {
  if (t_depth > 0) return --t_depth;
  const std::lock_guard lock(ranges().mutex);
  ranges().text += "-\n";
  return -1;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  called(__func__);
  if (!stream || t_capture.stream) return failed(cudaErrorIllegalState);
  t_capture = {stream, false, {}};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  called(__func__);
  *graph = nullptr;
  if (!capturing(stream)) return failed(cudaErrorIllegalState);
  const Capture over = std::exchange(t_capture, {});
  if (over.broken || refuses(__func__)) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{over.kept};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  called(__func__);
  if (refuses(__func__)) return failed(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->calls};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  called(__func__);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  called(__func__);
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  called(__func__);
  if (capturing(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = fault()) return error;
  for (const auto& call : executable->calls) run_on(stream, call);
  return cudaSuccess;
}
