#include "parallel/cuda/link.h"

#include <algorithm>

#include "core/bf16.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "kernels/cuda/device_code.h"

namespace triax {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;
constexpr int kMaxRanks = 64;  // their addresses are the kernel's arguments

struct Places {
  const void* inputs[kMaxRanks];
  void* outputs[kMaxRanks];
  int n, outs;
};

__device__ inline float widen(float x) {
  return x;
}
__device__ inline double widen(double x) {
  return x;
}
__device__ inline float widen(bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
// Sums of integers are modulo their width.
__device__ inline unsigned long long widen(int64_t x) {
  return static_cast<unsigned long long>(x);
}
__device__ inline unsigned widen(int32_t x) {
  return static_cast<unsigned>(x);
}
__device__ inline unsigned widen(uint8_t x) {
  return x;
}
template <class T, class S>
__device__ inline T narrow(S x) {
  return static_cast<T>(x);
}
template <>
__device__ inline bf16 narrow<bf16, float>(float x) {
  return bf16{static_cast<uint16_t>(cuda::pack_bf16(x, 0.0f))};
}

/// Element i of all ranks, in the order of ranks, before any output is written: outputs may be inputs.
template <class T>
__global__ void sum_ranks(Places places, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    auto total = widen(static_cast<const T*>(places.inputs[0])[i]);
    for (int r = 1; r < places.n; ++r) total += widen(static_cast<const T*>(places.inputs[r])[i]);
    const T result = narrow<T>(total);
    for (int r = 0; r < places.outs; ++r) static_cast<T*>(places.outputs[r])[i] = result;
  }
}

/// The maximum of anything with NaN is NaN.
template <class T>
__global__ void max_ranks(Places places, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    T best = static_cast<const T*>(places.inputs[0])[i];
    for (int r = 1; r < places.n; ++r) {
      const T v = static_cast<const T*>(places.inputs[r])[i];
      best = v > best || v != v ? v : best;
    }
    for (int r = 0; r < places.outs; ++r) static_cast<T*>(places.outputs[r])[i] = best;
  }
}

template <class T>
void enqueue_reduction(CudaDevice& device, ReduceOp op, const Places& places, int64_t count) {
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
  if (op == ReduceOp::sum) {
    cuda::enqueue("sum_ranks", sum_ranks<T>, blocks, kThreads, 0, device.stream(), places, count);
  } else if constexpr (std::is_same_v<T, bf16>) {
    fail("the maximum of bf16 numbers over ranks is not computed on a GPU");
  } else {
    cuda::enqueue("max_ranks", max_ranks<T>, blocks, kThreads, 0, device.stream(), places, count);
  }
  check_cuda(cudaGetLastError(), fmt::format("the reduction of {} elements over {} ranks", count, places.n));
}

class CudaLink final : public DeviceLink {
 public:
  Event record(Device& device) override {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    Event owned(event, [](void* e) { cudaEventDestroy(static_cast<cudaEvent_t>(e)); });
    check_cuda(cudaEventRecord(event, static_cast<CudaDevice&>(device).stream()), "cudaEventRecord");
    return owned;
  }

  void wait(Device& device, const Event& event) override {
    if (!event) return;
    check_cuda(cudaStreamWaitEvent(static_cast<CudaDevice&>(device).stream(),
                                   static_cast<cudaEvent_t>(event.get()), 0),
               "cudaStreamWaitEvent");
  }

  void reduce(Device& device, DType dtype, ReduceOp op, const std::vector<const void*>& inputs, int64_t count,
              const std::vector<void*>& outputs) override {
    if (count == 0) return;
    check(inputs.size() <= kMaxRanks, "a group of {} ranks that are threads on one GPU; at most {}",
          inputs.size(), kMaxRanks);
    Places places{};
    std::copy(inputs.begin(), inputs.end(), places.inputs);
    std::copy(outputs.begin(), outputs.end(), places.outputs);
    places.n = static_cast<int>(inputs.size());
    places.outs = static_cast<int>(outputs.size());
    auto& cuda_device = static_cast<CudaDevice&>(device);
    switch (dtype) {
      case DType::f32:
        return enqueue_reduction<float>(cuda_device, op, places, count);
      case DType::bf16:
        return enqueue_reduction<bf16>(cuda_device, op, places, count);
      case DType::f64:
        return enqueue_reduction<double>(cuda_device, op, places, count);
      case DType::i32:
        return enqueue_reduction<int32_t>(cuda_device, op, places, count);
      case DType::i64:
        return enqueue_reduction<int64_t>(cuda_device, op, places, count);
      case DType::u8:
        return enqueue_reduction<uint8_t>(cuda_device, op, places, count);
    }
  }
};

}  // namespace

DeviceLink& cuda_link() {
  static CudaLink link;
  return link;
}

}  // namespace triax
