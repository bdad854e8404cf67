#include <cstdint>

#include "core/cuda_choices.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/state.h"

// cuBLASLt knows matrices by columns. A matrix of rows is its transpose by columns, so the product that is
// asked for is C^T = op(B)^T op(A)^T, with our B in the place of the library's A, and its bias of one value
// per row of C^T.
//
// Sums are fp32 (CUBLAS_COMPUTE_32F: no TF32 unless TRIAX_CUDA_TF32 asks for it), also those of a product
// that is split along K, which are kept in fp32 until they are added. The algorithm is the heuristic's first:
// equal calls have equal bits, on one kind of GPU and version of the library.
//
// The library's GELU is the tanh form. Its epilogue for the bias's gradient is not used: it writes the sums
// in the result's type, and the gradients of weights are accumulated in fp32.

namespace triax::cuda {

namespace {

/// The largest power of two, up to the widest load's 16 bytes, that an address is a multiple of. Where a
/// tensor lies beyond that changes with the grid and its buckets, and is not to choose the algorithm.
int alignment_of(const void* p) {
  int alignment = 16;
  while (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

const void* address(const ConstElements& x) {
  return x.dtype() == DType::bf16 ? static_cast<const void*>(x.as<bf16>())
                                  : static_cast<const void*>(x.as<float>());
}

void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const auto& value,
         const char* what) {
  check_cublas(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), what);
}
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const auto& value, const char* what) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), what);
}

cublasLtEpilogue_t epilogue_of(const GemmKey& key) {
  switch (key.epilogue) {
    case Epilogue::gelu:
      return key.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_gradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::none:
      break;
  }
  return key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

cublasLtMatrixLayout_t layout(DType dtype, int64_t rows, int64_t columns, int64_t ld) {
  cublasLtMatrixLayout_t made = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), ld),
               "cublasLtMatrixLayoutCreate");
  return made;
}

}  // namespace

GemmPlan::GemmPlan(cublasLtHandle_t handle, const GemmKey& key, const void* bias, const void* z,
                   size_t workspace_bytes) {
  static const bool tf32 = cuda_choices().tf32;
  check_cublas(
      cublasLtMatmulDescCreate(
          &desc_, tf32 && key.operands == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
          CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  const int32_t no = CUBLAS_OP_N, yes = CUBLAS_OP_T;
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? yes : no, "transposition of B");
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? yes : no, "transposition of A");
  set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue_of(key)), "the epilogue");
  if (key.bias) set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, "the bias's address");
  if (key.epilogue != Epilogue::none) {
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, z, "the address of GELU's argument");
    set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ldc, "the rows of GELU's argument");
  }
  a_ = layout(key.operands, key.transpose_b ? key.k : key.n, key.transpose_b ? key.n : key.k, key.ldb);
  b_ = layout(key.operands, key.transpose_a ? key.m : key.k, key.transpose_a ? key.k : key.m, key.lda);
  c_ = layout(key.result, key.n, key.m, key.ldc);

  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes}, "the workspace");
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}, "sums in fp32");
  const auto aligned = [&](cublasLtMatmulPreferenceAttributes_t attribute, int bytes) {
    set(preference, attribute, static_cast<uint32_t>(bytes), "alignment");
  };
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_c);
  aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment_c);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, desc_, a_, b_, c_, c_, preference, 1, &best, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  exists_ = status == CUBLAS_STATUS_SUCCESS && found > 0 && best.state == CUBLAS_STATUS_SUCCESS;
  check(exists_ || key.epilogue != Epilogue::none,
        "cuBLASLt has no algorithm for a product of {} x {} by {} x {} in {}, result in {}, rows {}, {} and "
        "{} apart, "
        "at addresses that are multiples of {}, {} and {} bytes: {}",
        key.m, key.k, key.k, key.n, name_of(key.operands), name_of(key.result), key.lda, key.ldb, key.ldc,
        key.alignment_a, key.alignment_b, key.alignment_c,
        cublasLtGetStatusString(status != CUBLAS_STATUS_SUCCESS || found == 0 ? status : best.state));
  algorithm_ = best.algo;
}

GemmPlan::~GemmPlan() {
  for (const cublasLtMatrixLayout_t l : {a_, b_, c_})
    if (l) cublasLtMatrixLayoutDestroy(l);
  if (desc_) cublasLtMatmulDescDestroy(desc_);
}

void GemmPlan::run(cublasLtHandle_t handle, CudaDevice& device, const Gemm& op, const void* z) const {
  if (z) set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, z, "the address of GELU's argument");
  if (op.bias) set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, address(op.bias), "the bias's address");
  const float alpha = 1;
  void* c = const_cast<void*>(address(op.c));
  const cublasStatus_t status =
      cublasLtMatmul(handle, desc_, &alpha, address(op.b), a_, address(op.a), b_, &op.beta, c, c_, c, c_,
                     &algorithm_, device.workspace(), cuda_workspace_bytes, device.stream());
  // The library's words for a kernel of before that has failed would name the product.
  if (status != CUBLAS_STATUS_SUCCESS) device.check(cudaGetLastError(), "cublasLtMatmul");
  check_cublas(status, "cublasLtMatmul");
}

namespace {

/// Enqueues the product, or says that the library has none with this epilogue; a plain one it has.
bool multiply(CudaDevice& gpu, const Gemm& op, Epilogue epilogue, const void* z) {
  check(op.beta == 0 || op.beta == 1, "a GEMM's beta is {}; it can be 0 (write) or 1 (accumulate)", op.beta);
  check(op.a.dtype() == op.b.dtype(), "a GEMM of {} and {}: A and B must have one type",
        name_of(op.a.dtype()), name_of(op.b.dtype()));
  check(op.beta == 0 || op.c.dtype() == DType::f32, "a GEMM can't accumulate in {}, only in f32",
        name_of(op.c.dtype()));
  if (op.m <= 0 || op.n <= 0) return true;
  check(op.k > 0, "a GEMM over K = {}: the GPU's takes at least 1", op.k);
  const GemmKey key{.m = op.m,
                    .n = op.n,
                    .k = op.k,
                    .lda = op.lda,
                    .ldb = op.ldb,
                    .ldc = op.ldc,
                    .alignment_a = alignment_of(address(op.a)),
                    .alignment_b = alignment_of(address(op.b)),
                    .alignment_c = alignment_of(address(op.c)),
                    .alignment_bias = alignment_of(address(op.bias)),
                    .alignment_z = alignment_of(z),
                    .operands = op.a.dtype(),
                    .result = op.c.dtype(),
                    .epilogue = epilogue,
                    .transpose_a = op.transpose_a,
                    .transpose_b = op.transpose_b,
                    .bias = static_cast<bool>(op.bias),
                    .accumulates = op.beta != 0};
  KernelState& state = state_of(gpu);
  const GemmPlan& plan = state.plan(key, address(op.bias), z, cuda_workspace_bytes);
  if (plan.exists()) {
    plan.run(state.handle(), gpu, op, z);
    gpu.enqueued("gemm");
  }
  return plan.exists();
}

}  // namespace

void gemm(Device& device, const Gemm& op) {
  multiply(cuda_device(device), op, Epilogue::none, nullptr);
}

void gemm_gelu(Device& device, const GemmGelu& op) {
  CudaDevice& gpu = cuda_device(device);
  Gemm product = op.product;
  if (multiply(gpu, product, Epilogue::gelu, address(op.z))) return;
  const Elements y = product.c;
  product.c = op.z;
  multiply(gpu, product, Epilogue::none, nullptr);
  check(product.ldc == product.n, "GELU of rows that are {} elements long and {} apart", product.n,
        product.ldc);
  bias_gelu_forward(device, {product.m, product.n, op.z, nullptr, y});
}

void gemm_gelu_backward(Device& device, const GemmGeluBackward& op) {
  CudaDevice& gpu = cuda_device(device);
  const Gemm& product = op.product;
  if (multiply(gpu, product, Epilogue::gelu_gradient, address(op.z))) return;
  multiply(gpu, product, Epilogue::none, nullptr);
  check(product.ldc == product.n, "GELU of rows that are {} elements long and {} apart", product.n,
        product.ldc);
  bias_gelu_backward(device, {product.m, product.n, op.z, nullptr, product.c, product.c});
}

}  // namespace triax::cuda
