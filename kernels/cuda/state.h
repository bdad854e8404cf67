#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>

#include "core/device_cuda.h"
#include "kernels/kernels.h"

namespace triax::cuda {

inline constexpr int rope_max_half = 128;  ///< pairs of a head
/// Radians per position of each pair; handed to the kernel by value.
struct RopeFrequencies {
  double frequency[rope_max_half];
};

/// What a product does at its end, besides a bias: Gemm, GemmGelu, GemmGeluBackward.
enum class Epilogue { none, gelu, gelu_gradient };

/// What is asked of cuBLASLt, apart from addresses: products that are equal in this use one plan. Addresses
/// count by what they are multiples of, since the algorithms do.
struct GemmKey {
  int64_t m, n, k, lda, ldb, ldc;
  int alignment_a, alignment_b, alignment_c, alignment_bias, alignment_z;
  DType operands, result;
  Epilogue epilogue;
  bool transpose_a, transpose_b, bias, accumulates;
  auto operator<=>(const GemmKey&) const = default;
};

/// Descriptors and the algorithm that the library's heuristic puts first. Owns them.
class GemmPlan {
 public:
  /// `bias` and `z` stand for the real ones' alignment. A plain product that the library has no algorithm for
  /// is a fault.
  GemmPlan(cublasLtHandle_t handle, const GemmKey& key, const void* bias, const void* z,
           size_t workspace_bytes);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  /// Whether the library has an algorithm with this epilogue.
  bool exists() const { return exists_; }
  /// Enqueues the product; `op` is one of the key that the plan was made for, z as its epilogue has it.
  void run(cublasLtHandle_t handle, CudaDevice& device, const Gemm& op, const void* z) const;

 private:
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  bool exists_ = false;
};

/// What the kernels keep from call to call on one device: CudaDevice::extension().
class KernelState {
 public:
  KernelState();
  ~KernelState();
  KernelState(const KernelState&) = delete;
  KernelState& operator=(const KernelState&) = delete;

  cublasLtHandle_t handle() const { return handle_; }
  /// The plan of a product; made where there is none yet.
  const GemmPlan& plan(const GemmKey& key, const void* bias, const void* z, size_t workspace_bytes);
  const RopeFrequencies& rope_frequencies(const Rope& op);
  /// Made when attention goes through cuDNN for the first time.
  std::shared_ptr<class CudnnAttention> cudnn_attention;

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmKey, GemmPlan> plans_;
  struct RopeKey {
    float theta;
    int64_t head_size;
    double factor, context, low, high;
    auto operator<=>(const RopeKey&) const = default;
  };
  std::map<RopeKey, RopeFrequencies> frequencies_;
};

KernelState& state_of(CudaDevice& device);

/// A fault with cuBLASLt's words unless `status` is success.
void check_cublas(cublasStatus_t status, const char* call);

}  // namespace triax::cuda
