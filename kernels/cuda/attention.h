#pragma once

#include "core/device_cuda.h"
#include "kernels/kernels.h"

namespace triax::cuda {

inline constexpr int64_t attention_max_head = 256;

// attention_tensor.cu: bf16 on tensor cores.
/// Whether the kernels below take this shape, at these addresses.
bool tensor_attention_takes(int64_t head_size, const ConstElements& a, const ConstElements& b,
                            const ConstElements& c, const ConstElements& d);
void tensor_attention_forward(CudaDevice& device, const AttentionForward& op);
/// `delta` [B, A, S] holds the sums over dout * out.
void tensor_attention_backward(CudaDevice& device, const AttentionBackward& op, const float* delta);

// attention_plain.cu: any type and head size, fp32 arithmetic.
void plain_attention_forward(CudaDevice& device, const AttentionForward& op);
void plain_attention_backward(CudaDevice& device, const AttentionBackward& op, const float* delta);
/// The cache holds the new positions already.
void plain_attention_cached(CudaDevice& device, const AttentionCached& op);

}  // namespace triax::cuda
