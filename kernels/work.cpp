#include "kernels/work.h"

namespace triax {

namespace {

constexpr double f32 = sizeof(float), i32 = sizeof(int32_t);

double number(int64_t n) {
  return static_cast<double>(n);
}

double width(const ConstElements& x) {
  return static_cast<double>(size_of(x.dtype()));
}

// An element-wise kernel: operations per element, and tensors of that size and type read or written.
KernelWork elements(std::string_view kernel, int64_t n, double flops, double tensors,
                    const ConstElements& type = {}) {
  return {kernel, flops * number(n), width(type) * tensors * number(n)};
}

// Query-key pairs of a causal attention, over batch and heads.
template <class Op>
double pairs(const Op& op) {
  return number(op.b) * number(op.heads) * number(op.s) * number(op.s + 1) / 2;
}

}  // namespace

KernelWork work_of(const Gemm& op) {
  const double m = number(op.m), n = number(op.n), k = number(op.k);
  return {"gemm", 2 * m * n * k,
          width(op.a) * (m * k + k * n) + width(op.c) * (op.beta != 0 ? 2 : 1) * m * n};
}

KernelWork work_of(const GemmGelu& op) {
  KernelWork work = work_of(op.product);
  work.kernel = "gemm_gelu";
  work.bytes += width(op.z) * number(op.product.m) * number(op.product.n);
  return work;
}
KernelWork work_of(const GemmGeluBackward& op) {
  KernelWork work = work_of(op.product);
  work.kernel = "gemm_gelu_backward";
  work.bytes += width(op.z) * number(op.product.m) * number(op.product.n);
  return work;
}

KernelWork work_of(const AttentionForward& op) {
  const double rows = number(op.b * op.s), d = number(op.head_size);
  return {"attention_forward", 4 * d * pairs(op),
          width(op.qkv) * rows * d * number(2 * op.heads + 2 * op.kv_heads)};
}

KernelWork work_of(const AttentionBackward& op) {
  const double rows = number(op.b * op.s), d = number(op.head_size);
  return {"attention_backward", 10 * d * pairs(op),
          width(op.qkv) * rows * d * number(4 * op.heads + 4 * op.kv_heads)};
}

KernelWork work_of(const AttentionCached& op) {
  const double s = number(op.s), before = number(op.first), d = number(op.head_size);
  const double met = number(op.heads) * (s * before + s * (s + 1) / 2);
  return {
      "attention_cached", 4 * d * met,
      width(op.qkv) * d * (s * number(2 * op.heads + 2 * op.kv_heads) + 2 * before * number(op.kv_heads))};
}

KernelWork work_of(const ResidualAdd& op) {
  return elements("residual_add", op.t * op.h, 1, op.x ? 3 : 2, op.y);
}
KernelWork work_of(const NormForward& op) {
  return elements("norm_forward", op.t * op.h, 5, op.delta ? 4 : 2, op.y);
}
KernelWork work_of(const NormBackwardInput& op) {
  return elements("norm_backward_input", op.t * op.h, 8, op.dr ? 4 : 3, op.dx);
}
KernelWork work_of(const NormBackwardWeight& op) {
  return elements("norm_backward_weight", op.t * op.h, 4, 2, op.dy);
}
KernelWork work_of(const Rope& op) {
  return elements("rope", op.b * op.s * op.heads * op.head_size, 3, 2, op.x);
}
KernelWork work_of(const EmbeddingForward& op) {
  return elements("embedding_forward", op.t * op.h, 0, 2, op.y);
}
KernelWork work_of(const EmbeddingBackward& op) {
  return elements("embedding_backward", op.t * op.h, 1, 3, op.dy);
}
KernelWork work_of(const PositionForward& op) {
  return elements("position_forward", op.t * op.h, 1, 3, op.y);
}
KernelWork work_of(const PositionBackward& op) {
  return elements("position_backward", op.t * op.h, 1, 3, op.dy);
}
KernelWork work_of(const Dropout& op) {
  return elements("dropout", op.t * op.h, 2, 2, op.y);  // the bits are made, not read
}
KernelWork work_of(const BiasGeluForward& op) {
  return elements("bias_gelu_forward", op.t * op.f, 10, 2, op.y);
}
KernelWork work_of(const BiasGeluBackward& op) {
  return elements("bias_gelu_backward", op.t * op.f, 15, op.y ? 4 : 3, op.du);
}
KernelWork work_of(const SwigluForward& op) {
  return elements("swiglu_forward", op.t * op.f, 5, 3, op.y);
}
KernelWork work_of(const SwigluBackward& op) {
  return elements("swiglu_backward", op.t * op.f, 10, op.y ? 6 : 5, op.dgu);
}
KernelWork work_of(const CrossEntropyMax& op) {
  return elements("cross_entropy_max", op.t * op.valid, 1, 1, op.logits);
}
KernelWork work_of(const CrossEntropySum& op) {
  return elements("cross_entropy_sum", op.t * op.valid, 3, 1, op.logits);
}
KernelWork work_of(const CrossEntropyBackward& op) {
  return elements("cross_entropy_backward", op.t * op.ld, 4, 2, op.dlogits);
}
KernelWork work_of(const CrossEntropyLoss& op) {
  return {"cross_entropy_loss", 3 * number(op.t), (2 * f32 + i32) * number(op.t)};
}
KernelWork work_of(const BiasBackward& op) {
  return elements("bias_backward", op.t * op.f, 1, 1, op.dy);
}
KernelWork work_of(const AdamW& op) {
  return elements("adamw", op.n, 15, op.rounded ? 7.5 : 7);  // reads four, writes three, and one in bf16
}
KernelWork work_of(const SquaredNorm& op) {
  return elements("squared_norm", op.n, 2, 1);
}
KernelWork work_of(const NormaliseSums& op) {
  return {"normalise_sums", 0, 2.0 * sizeof(ExactSum) * number(op.n)};
}
KernelWork work_of(const DecideUpdate&) {
  return {"decide_update", 0, 2.0 * sizeof(ExactSum) + sizeof(UpdateScalars)};
}
KernelWork work_of(const Add& op) {
  return elements("add", op.n, 1, 3);
}
KernelWork work_of(const Cast& op) {
  return {"cast", 0, 6 * number(op.n)};  // reads f32, writes bf16
}
KernelWork work_of(const FindNonFinite& op) {
  return elements("find_non_finite", op.n, 0, 1);
}

}  // namespace triax
