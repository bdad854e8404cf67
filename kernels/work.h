#pragma once

#include <string_view>

#include "kernels/kernels.h"

namespace triax {

/// What a call asks of a device, whatever its implementation: floating-point operations of products (a
/// multiplication and an addition each; of element-wise kernels a rough count, which no time hangs on), and
/// the bytes that must be read and written at least once.
struct KernelWork {
  std::string_view kernel;
  double flops = 0, bytes = 0;
};

/// 2 M N K; both operands read, C written, and read when it accumulates.
KernelWork work_of(const Gemm& op);
/// The product, and z written or read once.
KernelWork work_of(const GemmGelu& op);
KernelWork work_of(const GemmGeluBackward& op);
/// Causal: position i meets i + 1 keys. Scores and values, 4 D operations per pair and head; backward with
/// the recomputed scores 10 D (Dao et al. 2022).
KernelWork work_of(const AttentionForward& op);
KernelWork work_of(const AttentionBackward& op);
/// New positions alone: position i meets i + 1 keys, which are read with their values.
KernelWork work_of(const AttentionCached& op);

KernelWork work_of(const ResidualAdd& op);
KernelWork work_of(const NormForward& op);
KernelWork work_of(const NormBackwardInput& op);
KernelWork work_of(const NormBackwardWeight& op);
KernelWork work_of(const Rope& op);
KernelWork work_of(const EmbeddingForward& op);
KernelWork work_of(const EmbeddingBackward& op);
KernelWork work_of(const PositionForward& op);
KernelWork work_of(const PositionBackward& op);
KernelWork work_of(const Dropout& op);
KernelWork work_of(const BiasGeluForward& op);
KernelWork work_of(const BiasGeluBackward& op);
KernelWork work_of(const SwigluForward& op);
KernelWork work_of(const SwigluBackward& op);
KernelWork work_of(const CrossEntropyMax& op);
KernelWork work_of(const CrossEntropySum& op);
KernelWork work_of(const CrossEntropyBackward& op);
KernelWork work_of(const CrossEntropyLoss& op);
KernelWork work_of(const BiasBackward& op);
KernelWork work_of(const AdamW& op);
KernelWork work_of(const SquaredNorm& op);
KernelWork work_of(const NormaliseSums& op);
KernelWork work_of(const DecideUpdate& op);
KernelWork work_of(const Add& op);
KernelWork work_of(const Cast& op);
KernelWork work_of(const FindNonFinite& op);

}  // namespace triax
