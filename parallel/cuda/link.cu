#include "parallel/cuda/link.h"

#include <algorithm>

#include "comm/nccl/connect.h"
#include "core/bf16.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "kernels/cuda/device_code.h"
#include "kernels/cuda/limits.h"

namespace triax {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 4096;
constexpr int kMaxRanks = cuda::max_thread_ranks;  // their addresses are the kernel's arguments

/// Where the ranks' elements are: buffers of all ranks of this process, ...
struct Places {
  const void* inputs[kMaxRanks];
  void* outputs[kMaxRanks];
  int n, outs;
  template <class T>
  __device__ T input(int rank, int64_t i) const {
    return static_cast<const T*>(inputs[rank])[i];
  }
  template <class T>
  __device__ void put(int64_t i, T value) const {
    for (int r = 0; r < outs; ++r) static_cast<T*>(outputs[r])[i] = value;
  }
};

/// ... or pieces that other processes have sent.
struct Pieces {
  PieceSum sum;
  int n;
  template <class T>
  __device__ T input(int rank, int64_t i) const {
    return rank == sum.rank ? static_cast<const T*>(sum.mine)[i]
                            : static_cast<const T*>(sum.pieces)[rank * sum.stride + i];
  }
  template <class T>
  __device__ void put(int64_t i, T value) const {
    static_cast<T*>(sum.result)[i] = value;
  }
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
// What a maximum compares.
template <class T>
__device__ inline T comparable(T x) {
  return x;
}
__device__ inline float comparable(bf16 x) {
  return widen(x);
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
template <class T, class From>
__global__ void sum_ranks(From from, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    auto total = widen(from.template input<T>(0, i));
    for (int r = 1; r < from.n; ++r) total += widen(from.template input<T>(r, i));
    from.put(i, narrow<T>(total));
  }
}

/// The maximum of anything with NaN is NaN.
template <class T, class From>
__global__ void max_ranks(From from, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    auto best = comparable(from.template input<T>(0, i));
    for (int r = 1; r < from.n; ++r) {
      const auto v = comparable(from.template input<T>(r, i));
      best = v > best || v != v ? v : best;
    }
    from.put(i, narrow<T>(best));
  }
}

template <class T, class From>
void enqueue_reduction(cudaStream_t stream, ReduceOp op, const From& from, int64_t count) {
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxBlocks));
  if (op == ReduceOp::sum)
    cuda::enqueue("sum_ranks", sum_ranks<T, From>, blocks, kThreads, 0, stream, from, count);
  else
    cuda::enqueue("max_ranks", max_ranks<T, From>, blocks, kThreads, 0, stream, from, count);
}

template <class From>
void enqueue_reduction(cudaStream_t stream, DType dtype, ReduceOp op, const From& from, int64_t count) {
  switch (dtype) {
    case DType::f32:
      return enqueue_reduction<float>(stream, op, from, count);
    case DType::bf16:
      return enqueue_reduction<bf16>(stream, op, from, count);
    case DType::f64:
      return enqueue_reduction<double>(stream, op, from, count);
    case DType::i32:
      return enqueue_reduction<int32_t>(stream, op, from, count);
    case DType::i64:
      return enqueue_reduction<int64_t>(stream, op, from, count);
    case DType::u8:
      return enqueue_reduction<uint8_t>(stream, op, from, count);
  }
}

void add_pieces(cudaStream_t stream, const PieceSum& sum) {
  enqueue_reduction(stream, sum.dtype, sum.op, Pieces{sum, sum.ranks}, sum.count);
  check_cuda(cudaGetLastError(),
             fmt::format("the reduction of {} elements over {} ranks", sum.count, sum.ranks));
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
    auto& gpu = static_cast<CudaDevice&>(device);
    enqueue_reduction(gpu.stream(), dtype, op, places, count);
    gpu.check_launch("reduction over ranks");
    gpu.enqueued("reduction over ranks");
  }

  std::unique_ptr<Communicator> connect(std::unique_ptr<Communicator>& group, Device& device,
                                        const DeviceMessages& messages, std::string& why) override {
    return connect_nccl(group, static_cast<CudaDevice&>(device), messages, add_pieces, why);
  }
};

}  // namespace

DeviceLink& cuda_link() {
  static CudaLink link;
  return link;
}

}  // namespace triax
