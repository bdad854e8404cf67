#pragma once

#include "kernels/kernels.h"

namespace triax::cuda {

// The GPU's entries of the table (cuda_kernels() of kernels.h, called with a CudaDevice of core/device_cuda.h
// alone), defined in the file of the group's name, as in cpu/cpu.h. Their contracts stand in kernels.h; all
// pointers are device memory. Each is enqueued on the device's stream; one that the runtime refuses is a
// fault that names the kernel. No kernel waits for the host or allocates (but a plan, at a product's first
// call); none adds floats in an order that chance decides, so that equal calls have equal bits.
//
// Where kernels.h promises more than a GPU keeps:
// - gemm: a row's bits may depend on M and, below 16 bytes, on what the addresses are multiples of, since
// cuBLASLt
//   chooses its algorithm by them; and they belong to one kind of GPU and one version of the library.
// - attention_cached: in bf16, with head sizes that the tensor cores' kernels take (64, 128), the output is
// that of
//   attention_forward up to rounding, not its bits; in f32 and for other head sizes it has the bits.
// - norms and other vectorised kernels: the width of their loads depends on whether addresses are multiples
// of 16 bytes,
//   and with it the order of a row's sum.

// gemm.cu
void gemm(Device& device, const Gemm& op);
/// Where cuBLASLt has no algorithm with the epilogue, the product and then GELU.
void gemm_gelu(Device& device, const GemmGelu& op);
void gemm_gelu_backward(Device& device, const GemmGeluBackward& op);

// norm.cu
void residual_add(Device& device, const ResidualAdd& op);
void norm_forward(Device& device, const NormForward& op);
void norm_backward_input(Device& device, const NormBackwardInput& op);
void norm_backward_weight(Device& device, const NormBackwardWeight& op);

// attention.cu
void attention_forward(Device& device, const AttentionForward& op);
void attention_backward(Device& device, const AttentionBackward& op);
void attention_cached(Device& device, const AttentionCached& op);

// rope.cu
void rope(Device& device, const Rope& op);

// embedding.cu
void embedding_forward(Device& device, const EmbeddingForward& op);
void embedding_backward(Device& device, const EmbeddingBackward& op);
void position_forward(Device& device, const PositionForward& op);
void position_backward(Device& device, const PositionBackward& op);

// dropout.cu
void dropout(Device& device, const Dropout& op);

// activation.cu
void bias_gelu_forward(Device& device, const BiasGeluForward& op);
void bias_gelu_backward(Device& device, const BiasGeluBackward& op);
void swiglu_forward(Device& device, const SwigluForward& op);
void swiglu_backward(Device& device, const SwigluBackward& op);

// bias.cu
void bias_backward(Device& device, const BiasBackward& op);

// cross_entropy.cu
void cross_entropy_max(Device& device, const CrossEntropyMax& op);
void cross_entropy_sum(Device& device, const CrossEntropySum& op);
void cross_entropy_backward(Device& device, const CrossEntropyBackward& op);
void cross_entropy_loss(Device& device, const CrossEntropyLoss& op);

// adamw.cu
void adamw(Device& device, const AdamW& op);
void decide_update(Device& device, const DecideUpdate& op);

// reduce.cu
void squared_norm(Device& device, const SquaredNorm& op);
void normalise_sums(Device& device, const NormaliseSums& op);
void add(Device& device, const Add& op);
void cast(Device& device, const Cast& op);
void find_non_finite(Device& device, const FindNonFinite& op);

}  // namespace triax::cuda
