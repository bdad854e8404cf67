#include "kernels/cuda/state.h"

#include "core/error.h"
#include "kernels/rope_frequency.h"

namespace triax::cuda {

void check_cublas(cublasStatus_t status, const char* call) {
  check(status == CUBLAS_STATUS_SUCCESS, "{}: cuBLASLt says {}", call, cublasLtGetStatusString(status));
}

KernelState::KernelState() {
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
}

KernelState::~KernelState() {
  cublasLtDestroy(handle_);
}

const GemmPlan& KernelState::plan(const GemmKey& key, const void* bias, const void* z,
                                  size_t workspace_bytes) {
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  return plans_
      .emplace(std::piecewise_construct, std::forward_as_tuple(key),
               std::forward_as_tuple(handle_, key, bias, z, workspace_bytes))
      .first->second;
}

const RopeFrequencies& KernelState::rope_frequencies(const Rope& op) {
  const RopeStretch& s = op.stretch;
  const auto [at, is_new] =
      frequencies_.try_emplace({op.theta, op.head_size, s.factor, s.context, s.low, s.high});
  if (is_new)
    for (int64_t i = 0; i < op.head_size / 2; ++i)
      at->second.frequency[i] = rope_frequency(op.theta, s, op.head_size / 2, i);
  return at->second;
}

KernelState& state_of(CudaDevice& device) {
  std::shared_ptr<void>& extension = device.extension();
  if (!extension) extension = std::make_shared<KernelState>();
  return *static_cast<KernelState*>(extension.get());
}

}  // namespace triax::cuda
