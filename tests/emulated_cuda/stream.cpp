// Streams, events, captures and graphs. A stream does at once what it is given, unless it is being captured.

#include "stream.h"

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "include/nvtx3/nvToolsExt.h"

using Calls = std::vector<std::function<void()>>;

struct CUstream_st {
  bool capturing = false, broken = false;
  Calls kept;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point when;
};
struct CUgraph_st {
  Calls calls;
};
struct CUgraphExec_st {
  Calls calls;
};

namespace emulated_cuda {

namespace {

thread_local cudaStream_t t_captured = nullptr;  // one at a time is all that is needed
thread_local int t_break_after = 0;

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
  if (!t_captured) return cudaSuccess;
  t_captured->broken = true;
  return failed(cudaErrorStreamCaptureUnsupported);
}

void break_capture(int calls) {
  t_break_after = calls;
}

bool capturing(cudaStream_t stream) {
  return stream && stream->capturing;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> call) {
  if (!capturing(stream)) {
    call();
    return cudaSuccess;
  }
  if (t_break_after > 0 && --t_break_after == 0) stream->broken = true;
  if (stream->broken) return failed(cudaErrorStreamCaptureInvalidated);
  stream->kept.push_back(std::move(call));
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

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  called(__func__);
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  called(__func__);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return called_outside_of_captures(__func__);
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return called_outside_of_captures(__func__);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t, unsigned) {
  called(__func__);
  return enqueue(stream, [] {});
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  called(__func__);
  return enqueue(stream, [=] { function(data); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  called(__func__);
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  called(__func__);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  called(__func__);
  // In a graph it is an edge, and the event may be gone when that is launched.
  if (capturing(stream)) return enqueue(stream, [] {});
  event->when = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return called_outside_of_captures(__func__);
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return called_outside_of_captures(__func__);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->when - begin->when).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  called(__func__);
  if (!stream || stream->capturing || t_captured) return failed(cudaErrorIllegalState);
  stream->capturing = true;
  stream->broken = false;
  stream->kept.clear();
  t_captured = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  called(__func__);
  *graph = nullptr;
  if (!capturing(stream) || t_captured != stream) return failed(cudaErrorIllegalState);
  stream->capturing = false;
  t_captured = nullptr;
  if (stream->broken) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(stream->kept)};
  stream->kept.clear();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  called(__func__);
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
  for (const auto& call : executable->calls) call();
  return cudaSuccess;
}
