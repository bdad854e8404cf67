#pragma once

#include "core/device_cuda.h"
#include "kernels/cuda/limits.h"
#include "kernels/kernels.h"

namespace triax::cuda {

// attention_tensor.cu: bf16 on tensor cores.
/// Whether the kernels below take this shape, at these addresses.
bool tensor_attention_takes(int64_t head_size, const ConstElements& a, const ConstElements& b,
                            const ConstElements& c, const ConstElements& d);
void tensor_attention_forward(CudaDevice& device, const AttentionForward& op);
/// `delta` [B, A, S] holds the sums over dout * out.
void tensor_attention_backward(CudaDevice& device, const AttentionBackward& op, const float* delta);

// attention_cudnn.cu: cuDNN's, where it is asked for and takes the shape.
/// Whether cuDNN has been given the work.
bool cudnn_attention_forward(CudaDevice& device, const AttentionForward& op);
bool cudnn_attention_backward(CudaDevice& device, const AttentionBackward& op);
/// A fault unless cuDNN takes the graphs of attention for what they are meant to be; needs no GPU.
void check_cudnn_graphs();

// attention_plain.cu: any type and head size, fp32 arithmetic.
void plain_attention_forward(CudaDevice& device, const AttentionForward& op);
void plain_attention_backward(CudaDevice& device, const AttentionBackward& op, const float* delta);
/// The cache holds the new positions already.
void plain_attention_cached(CudaDevice& device, const AttentionCached& op);

}  // namespace triax::cuda
