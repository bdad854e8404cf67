#include "core/error.h"
#include "core/null_device.h"
#include "kernels/cuda/limits.h"
#include "kernels/work.h"

namespace triax {

namespace {

// A device that plans is told what would have been done; see work.h for what a new kernel has to say.
template <class Op>
void nothing(Device& device, const Op& op) {
  auto* planned = dynamic_cast<NullDevice*>(&device);
  if (!planned) return;
  const KernelWork work = work_of(op);
  planned->note(work.kernel, work.flops, work.bytes);
}

}  // namespace

const Kernels& null_kernels() {
  static const Kernels table{
      .name = "none",
      .gemm = nothing<Gemm>,
      .residual_add = nothing<ResidualAdd>,
      .norm_forward = nothing<NormForward>,
      .norm_backward_input = nothing<NormBackwardInput>,
      .norm_backward_weight = nothing<NormBackwardWeight>,
      .attention_forward = nothing<AttentionForward>,
      .attention_backward = nothing<AttentionBackward>,
      .attention_cached = nothing<AttentionCached>,
      .rope = nothing<Rope>,
      .embedding_forward = nothing<EmbeddingForward>,
      .embedding_backward = nothing<EmbeddingBackward>,
      .position_forward = nothing<PositionForward>,
      .position_backward = nothing<PositionBackward>,
      .dropout = nothing<Dropout>,
      .bias_gelu_forward = nothing<BiasGeluForward>,
      .bias_gelu_backward = nothing<BiasGeluBackward>,
      .swiglu_forward = nothing<SwigluForward>,
      .swiglu_backward = nothing<SwigluBackward>,
      .cross_entropy_max = nothing<CrossEntropyMax>,
      .cross_entropy_sum = nothing<CrossEntropySum>,
      .cross_entropy_backward = nothing<CrossEntropyBackward>,
      .cross_entropy_loss = nothing<CrossEntropyLoss>,
      .bias_backward = nothing<BiasBackward>,
      .adamw = nothing<AdamW>,
      .squared_norm = nothing<SquaredNorm>,
      .normalise_sums = nothing<NormaliseSums>,
      .decide_update = nothing<DecideUpdate>,
      .add = nothing<Add>,
      .cast = nothing<Cast>,
      .find_non_finite = nothing<FindNonFinite>,
      .gemm_gelu = nothing<GemmGelu>,
      .gemm_gelu_backward = nothing<GemmGeluBackward>,
  };
  return table;
}

Kernels null_kernels(const Kernels& real) {
  Kernels table = null_kernels();
  table.product_depth = real.product_depth;
  table.fuses_gelu = real.fuses_gelu;
  table.workspace_bytes = real.workspace_bytes;
  return table;
}

Kernels null_cuda_kernels() {
  Kernels table = null_kernels();
  table.fuses_gelu = cuda::fuses_gelu;
  table.workspace_bytes = cuda_workspace_bytes;
  return table;
}

}  // namespace triax
