#pragma once

#include "kernels/kernels.h"

namespace triax::cpu {

// The CPU's entries of the table, defined in the file of the group's name. Their contracts stand in
// kernels.h; all are done when they return and split their work over device.threads() by rules of the shape
// alone.

// gemm.cpp
void gemm(Device& device, const Gemm& op);
int64_t product_depth(DType operands, int64_t k);

// norm.cpp
void residual_add(Device& device, const ResidualAdd& op);
void norm_forward(Device& device, const NormForward& op);
void norm_backward_input(Device& device, const NormBackwardInput& op);
void norm_backward_weight(Device& device, const NormBackwardWeight& op);

// attention.cpp
void attention_forward(Device& device, const AttentionForward& op);
void attention_backward(Device& device, const AttentionBackward& op);
void attention_cached(Device& device, const AttentionCached& op);

// rope.cpp
void rope(Device& device, const Rope& op);

// embedding.cpp
void embedding_forward(Device& device, const EmbeddingForward& op);
void embedding_backward(Device& device, const EmbeddingBackward& op);
void position_forward(Device& device, const PositionForward& op);
void position_backward(Device& device, const PositionBackward& op);

// dropout.cpp
void dropout(Device& device, const Dropout& op);

// activation.cpp
void bias_gelu_forward(Device& device, const BiasGeluForward& op);
void bias_gelu_backward(Device& device, const BiasGeluBackward& op);
void swiglu_forward(Device& device, const SwigluForward& op);
void swiglu_backward(Device& device, const SwigluBackward& op);
void bias_backward(Device& device, const BiasBackward& op);

// cross_entropy.cpp
void cross_entropy_max(Device& device, const CrossEntropyMax& op);
void cross_entropy_sum(Device& device, const CrossEntropySum& op);
void cross_entropy_backward(Device& device, const CrossEntropyBackward& op);
void cross_entropy_loss(Device& device, const CrossEntropyLoss& op);

// adamw.cpp
void adamw(Device& device, const AdamW& op);
void decide_update(Device& device, const DecideUpdate& op);

// reduce.cpp
void squared_norm(Device& device, const SquaredNorm& op);
void normalise_sums(Device& device, const NormaliseSums& op);
void add(Device& device, const Add& op);
void cast(Device& device, const Cast& op);
/// y[0, n) = x, rounded to bf16, by the thread that calls: a part of other kernels.
void round_range(const float* x, bf16* y, int64_t n);
void find_non_finite(Device& device, const FindNonFinite& op);

}  // namespace triax::cpu
