#pragma once

#include <array>
#include <cstdint>

#include "core/device.h"
#include "core/elements.h"
#include "core/rng.h"
#include "kernels/exact_sum.h"

namespace triax {

// One typed table of operations per backend; cpu/ and cuda/ mirror each other file by file. All functions are
// enqueued on the device and done when it says so (the CPU: on return). Every pointer in an operation, those
// to sums, indices and scalars too, is to the device's memory (the CPU: the host's). Tensors are views;
// nothing is allocated. Letters: T tokens of a micro-batch (B * S), H hidden, F intermediate, V vocabulary
// rows of this rank, A query heads, K key-value heads, D head size, all of this rank. Results depend neither
// on the number of threads nor on where buffers lie, and a row's result does not depend on which other rows
// are computed with it.
//
// Elements are f32 or bf16, all of one operation alike; what is `float*` is f32 in either case (statistics,
// gradients of weights, optimizer state). bf16 is computed in fp32 and rounded once, to nearest, where it is
// stored.
//
// "writes" means that the destination's old content is ignored, "accumulates" that the result is added to it.

/// C = op(A) * op(B) + beta * C (+ bias in each row). Row-major; ld = distance of rows in elements. A and B
/// have one type; C has it too, or is f32; the bias has C's. Sums are fp32; a bf16 C is only written.
struct Gemm {
  bool transpose_a = false;  ///< A is stored [K, M] instead of [M, K]
  bool transpose_b = false;  ///< B is stored [N, K] instead of [K, N]
  int64_t m = 0, n = 0, k = 0;
  ConstElements a{};
  int64_t lda = 0;
  ConstElements b{};
  int64_t ldb = 0;
  Elements c{};
  int64_t ldc = 0;
  float beta = 0;        ///< 0 writes, 1 accumulates
  ConstElements bias{};  ///< [N] or null
};

/// y = x + (delta + bias): the residual sum with a row-parallel layer's bias, which is added once, after the
/// reduction.
struct ResidualAdd {
  int64_t t, h;
  ConstElements x;      ///< [T, H], or null: taken as 0
  ConstElements delta;  ///< [T, H]
  ConstElements bias;   ///< [H] or null
  Elements y;           ///< [T, H] writes; may be x or delta
};

/// Pre-norm with the residual sum fused: r = x + (delta + delta_bias); y = norm(r) * weight (+ bias). r has
/// the bits of ResidualAdd.
struct NormForward {
  int64_t t, h;
  ConstElements x;           ///< [T, H]
  ConstElements delta;       ///< [T, H], or null: r = x and residual is not written
  ConstElements delta_bias;  ///< [H] or null
  Elements residual;         ///< r [T, H]; may be x itself; unused when delta is null
  ConstElements weight;      ///< [H]
  ConstElements bias;        ///< [H]; null for RMSNorm
  float epsilon;
  Elements y;   ///< [T, H] writes; may be delta
  float* mean;  ///< [T]; null for RMSNorm
  float* rstd;  ///< [T]
};

/// dx = dr + d norm(r)/dr * dy, where dr is the gradient that reaches r past the norm.
struct NormBackwardInput {
  int64_t t, h;
  ConstElements dy;        ///< [T, H]
  ConstElements residual;  ///< r [T, H]
  ConstElements weight;    ///< [H]
  const float* mean;       ///< [T]; null for RMSNorm
  const float* rstd;       ///< [T]
  ConstElements dr;        ///< [T, H] or null (zero)
  Elements dx;             ///< [T, H] writes; may be dr, dy or residual
};

/// dweight += sum_t dy * xhat, dbias += sum_t dy.
struct NormBackwardWeight {
  int64_t t, h;
  ConstElements dy;        ///< [T, H]
  ConstElements residual;  ///< r [T, H]
  const float* mean;       ///< [T]; null for RMSNorm
  const float* rstd;       ///< [T]
  float* dweight;          ///< [H] accumulates
  float* dbias;            ///< [H] accumulates; null for RMSNorm
};

/// Causal multi-head attention on rows of fused projections: row t of qkv is [A*D query | K*D key | K*D
/// value]; query head a reads key-value head a / (A / K). Scores are scaled by 1/sqrt(D). Blocked with an
/// online softmax (FlashAttention, Dao et al. 2022): S x S is never stored.
struct AttentionForward {
  int64_t b, s, heads, kv_heads, head_size;
  ConstElements qkv;  ///< [B*S, (A + 2K) * D]
  Elements out;       ///< [B*S, A*D]
  float* lse;         ///< [B, A, S] log of the softmax's denominator, for the backward
};
struct AttentionBackward {
  int64_t b, s, heads, kv_heads, head_size;
  ConstElements qkv;
  ConstElements out;
  const float* lse;
  ConstElements dout;  ///< [B*S, A*D]
  Elements dqkv;       ///< [B*S, (A + 2K) * D] writes
};

/// Positions of a block of the key-value cache.
inline constexpr int64_t cache_block = 64;
/// Attention of new positions of one sequence (generation): row t of qkv, laid out as in AttentionForward,
/// with its positions encoded, stands at position first + t. The new keys and values go into the cache; then
/// query t meets the keys of positions 0 .. first + t. The output has the bits of AttentionForward over the
/// whole sequence. Keys lie in blocks with the positions innermost, where a query meets many at once; values
/// lie position by position.
struct AttentionCached {
  int64_t s, first, capacity;  ///< new positions; where they begin; a multiple of cache_block
  int64_t heads, kv_heads, head_size;
  ConstElements qkv;  ///< [S, (A + 2K) * D]
  Elements keys;      ///< [K, capacity / cache_block, D, cache_block] writes the new positions
  Elements values;    ///< [K, capacity, D] writes the new positions
  Elements out;       ///< [S, A*D] writes
};

/// What long contexts do to a frequency f of Rope: f ((1 - s) / factor + s), with s rising from 0 to 1 while
/// the turns context f / 2 pi go from `low` to `high` (LLaMA 3.1); without a context s is 0 (Chen et al.
/// 2023, "Extending context window by positional interpolation").
struct RopeStretch {
  double factor = 1;  ///< 1: nothing is done
  double context = 0, low = 0, high = 0;
};

/// Rotary embedding in the half-split convention of Hugging Face's LLaMA (Su et al. 2021), in place on the
/// first `heads` heads of each row (query and key heads are adjacent: pass A + K).
struct Rope {
  int64_t b, s, heads, head_size;
  int64_t row_stride;  ///< elements from row t to row t + 1
  Elements x;          ///< [B*S, row_stride]
  float theta;
  bool inverse;       ///< rotates back: the backward
  int64_t first = 0;  ///< position of the first row of each sequence
  RopeStretch stretch{};
};

/// y[t] = table[ids[t] - first_row] where first_row <= ids[t] < first_row + rows, else 0.
struct EmbeddingForward {
  int64_t t, h, rows, first_row;
  const int32_t* ids;   ///< [T]
  ConstElements table;  ///< [rows, H]
  Elements y;           ///< [T, H] writes
};
/// dtable[ids[t] - first_row] += dy[t], in ascending order of t.
struct EmbeddingBackward {
  int64_t t, h, rows, first_row;
  const int32_t* ids;
  ConstElements dy;  ///< [T, H]
  float* dtable;     ///< [rows, H] accumulates
};
/// y[t] += positions[(first + t) % S], for T rows of a micro-batch (b*S + s) from row `first` on.
struct PositionForward {
  int64_t t, s, h, first;
  ConstElements positions;  ///< [>= S, H]
  Elements y;               ///< [T, H] accumulates
};
/// dpositions[(first + t) % S] += dy[t], in ascending order of t.
struct PositionBackward {
  int64_t t, s, h, first;
  ConstElements dy;   ///< [T, H]
  float* dpositions;  ///< [>= S, H] accumulates
};

/// Inverted dropout (Srivastava et al. 2014): y = (x + bias) * scale where an element is kept, else 0. An
/// element is kept when the Philox bits of its index in the whole tensor are at least `threshold`; rows lie
/// one behind the other in it, from element `first` on. The gradient is the same with dy for x. The stream's
/// domain, which differs from step to step, is read on the device, so that a step's calls can be replayed.
struct Dropout {
  int64_t t, h;
  ConstElements x;              ///< [T, H]
  ConstElements bias;           ///< [H] or null
  Elements y;                   ///< [T, H] writes; may be x
  std::array<uint32_t, 2> key;  ///< RandomStream::key()
  const uint64_t* domain;       ///< RandomStream::domain()
  uint64_t first;
  uint32_t threshold;  ///< probability of dropping * 2^32
  float scale;         ///< 1 / (1 - probability)
};

/// y = gelu_tanh(u + bias): 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))).
struct BiasGeluForward {
  int64_t t, f;
  ConstElements u;     ///< [T, F] without the bias
  ConstElements bias;  ///< [F]; null, where Kernels::fuses_gelu says so: u has it already
  Elements y;          ///< [T, F]
};
/// du = dy * gelu'(u + bias), and the forward's y once more, which then need not be kept.
struct BiasGeluBackward {
  int64_t t, f;
  ConstElements u;
  ConstElements bias;  ///< as in BiasGeluForward
  ConstElements dy;
  Elements du;   ///< [T, F] writes; may be u or dy
  Elements y{};  ///< [T, F] writes, with BiasGeluForward's bits; may be u or dy, if du is not; null: nothing
};
/// z = A op(B) + bias and y = gelu_tanh(z), at the product's end: `product` as for gemm, with y for its C,
/// both of one type and nothing accumulated.
struct GemmGelu {
  Gemm product;
  Elements z;  ///< [M, N] writes; rows as far apart as y's
};
/// dz = (A op(B)) * gelu_tanh'(z): `product`, without a bias, has dz for its C.
struct GemmGeluBackward {
  Gemm product;
  ConstElements z;  ///< [M, N] of GemmGelu
};
/// y = silu(gate) * up, with row t of gu = [F gate | F up].
struct SwigluForward {
  int64_t t, f;
  ConstElements gu;  ///< [T, 2F]
  Elements y;        ///< [T, F]
};
struct SwigluBackward {
  int64_t t, f;
  ConstElements gu;
  ConstElements dy;  ///< [T, F]
  Elements dgu;      ///< [T, 2F] writes; may be gu
  Elements y{};      ///< [T, F] writes, with SwigluForward's bits; may be dy; null: nothing
};

// Cross-entropy over a vocabulary that is cut by the tensor axis, in three passes with an all-reduce of [T]
// values between them (Megatron-LM's vocabulary-parallel cross-entropy): maximum, sum of exponentials and the
// target's logit, gradient.
/// maximum[t] = max over the valid columns, -inf when there is none.
struct CrossEntropyMax {
  int64_t t, valid, ld;  ///< `valid` columns take part; columns valid..ld-1 are padding
  ConstElements logits;  ///< [T, ld]
  float* maximum;        ///< [T] writes
};
/// sum_exp[t] = sum over valid columns of exp(logit - maximum[t]); target_logit[t] = logit of targets[t]
/// minus maximum[t] if it is on this rank (first_row <= target < first_row + valid), else 0.
struct CrossEntropySum {
  int64_t t, valid, ld, first_row;
  ConstElements logits;
  const float* maximum;
  const int32_t* targets;  ///< [T]; negative: no target, target_logit is 0
  float* sum_exp;          ///< [T] writes
  float* target_logit;     ///< [T] writes
};
/// dlogits[t][v] = (exp(logit - maximum[t]) / sum_exp[t] - [v is the target]) * scale, 0 for padding and for
/// rows without a target. In place when dlogits == logits.
struct CrossEntropyBackward {
  int64_t t, valid, ld, first_row;
  ConstElements logits;
  const float* maximum;
  const float* sum_exp;
  const int32_t* targets;
  float scale;
  Elements dlogits;  ///< [T, ld] writes
};
/// loss[t] = log(sum_exp[t]) - target_logit[t] in double, added exactly to `sum` for rows with a target.
struct CrossEntropyLoss {
  int64_t t;
  const float* sum_exp;
  const float* target_logit;
  const int32_t* targets;
  ExactSum* sum;  ///< accumulates
};

/// dbias[f] += sum_t dy[t][f].
struct BiasBackward {
  int64_t t, f;
  ConstElements dy;  ///< [T, F]
  float* dbias;      ///< [F] accumulates
};

/// What differs from update to update; in the device's memory, so that what computes it on the device, and
/// whoever replays the same calls, need no word of the host. The host writes what comes before grad_scale.
struct UpdateScalars {
  float lr = 0;
  float bias_correction1 = 1, bias_correction2 = 1;  ///< 1 - beta^updates
  float grad_scale = 1;                              ///< clip factor
  int32_t skip = 0;                                  ///< not 0: this update and all later ones change nothing
};

/// torch.optim.AdamW (Loshchilov and Hutter 2019) on n elements, in place:
/// g = grad * grad_scale; w *= 1 - lr * decay; m, v as usual; w -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) +
/// eps).
struct AdamW {
  int64_t n;
  float* weight;
  const float* grad;
  float* exp_avg;
  float* exp_avg_sq;
  float beta1, beta2, epsilon, weight_decay;
  const UpdateScalars* scalars;  ///< lr, bias1, bias2, grad_scale; with skip nothing is written
  bf16* rounded = nullptr;       ///< or null: the new weights, rounded
};

/// The sum over x[i]^2.
struct SquaredNorm {
  int64_t n;
  const float* x;
  ExactSum* sum;  ///< accumulates exactly: its bits do not depend on how elements are spread over calls
  /// Adds nothing but the count of squares that are not finite: copies of what another rank counts.
  bool only_non_finite = false;
};
/// Propagates the carries of sums[0, n) (ExactSum::normalise), so that ranks can add them word by word.
struct NormaliseSums {
  int64_t n;
  ExactSum* sums;
};
/// What an update is to do with the gradient, from what all ranks have summed: scalars->grad_scale is that of
/// torch.nn.utils.clip_grad_norm_, min(1, max_norm / (norm + 1e-6)) in double, rounded once (1 when max_norm
/// is 0); scalars->skip becomes 1 when the norm or the loss is not finite and is left alone otherwise: until
/// the host, which may have enqueued more by then, has seen to it and clears it, nothing is updated.
struct DecideUpdate {
  const ExactSum* squared_norm;
  const ExactSum* loss;
  double max_norm;
  UpdateScalars* scalars;  ///< writes grad_scale, sets skip, leaves the rest
};
/// y += x.
struct Add {
  int64_t n;
  const float* x;
  float* y;
};
/// y = x, rounded to bf16.
struct Cast {
  int64_t n;
  const float* x;
  bf16* y;
};
/// First index whose value is not finite, or -1.
struct FindNonFinite {
  int64_t n;
  const float* x;
  int64_t* index;  ///< writes
};

template <class Op>
using Kernel = void (*)(Device&, const Op&);

/// The table of one backend.
struct Kernels {
  const char* name;
  Kernel<Gemm> gemm;
  Kernel<ResidualAdd> residual_add;
  Kernel<NormForward> norm_forward;
  Kernel<NormBackwardInput> norm_backward_input;
  Kernel<NormBackwardWeight> norm_backward_weight;
  Kernel<AttentionForward> attention_forward;
  Kernel<AttentionBackward> attention_backward;
  Kernel<AttentionCached> attention_cached;
  Kernel<Rope> rope;
  Kernel<EmbeddingForward> embedding_forward;
  Kernel<EmbeddingBackward> embedding_backward;
  Kernel<PositionForward> position_forward;
  Kernel<PositionBackward> position_backward;
  Kernel<Dropout> dropout;
  Kernel<BiasGeluForward> bias_gelu_forward;
  Kernel<BiasGeluBackward> bias_gelu_backward;
  Kernel<SwigluForward> swiglu_forward;
  Kernel<SwigluBackward> swiglu_backward;
  Kernel<CrossEntropyMax> cross_entropy_max;
  Kernel<CrossEntropySum> cross_entropy_sum;
  Kernel<CrossEntropyBackward> cross_entropy_backward;
  Kernel<CrossEntropyLoss> cross_entropy_loss;
  Kernel<BiasBackward> bias_backward;
  Kernel<AdamW> adamw;
  Kernel<SquaredNorm> squared_norm;
  Kernel<NormaliseSums> normalise_sums;
  Kernel<DecideUpdate> decide_update;
  Kernel<Add> add;
  Kernel<Cast> cast;
  Kernel<FindNonFinite> find_non_finite;

  // What a backend may have besides: null where it has not.
  /// Of K: what a product of operands of this type sums before it adds to C, from K's beginning on (the last
  /// piece may be shorter). A product of each piece, accumulated in this order, gives the same bits as one of
  /// all. Null: K is not to be taken apart.
  int64_t (*product_depth)(DType operands, int64_t k) = nullptr;
  /// Whether products with `columns` columns of this type are to go through gemm_gelu and gemm_gelu_backward
  /// instead of gemm and bias_gelu_*; what is kept for the backward then is z, with the bias.
  bool (*fuses_gelu)(DType dtype, int64_t columns) = nullptr;
  Kernel<GemmGelu> gemm_gelu = nullptr;
  Kernel<GemmGeluBackward> gemm_gelu_backward = nullptr;
  /// Bytes of the device's memory that the kernels share, taken by the first call that needs them.
  size_t workspace_bytes = 0;
};

/// Kernels for DeviceKind::cpu.
const Kernels& cpu_kernels();
/// Kernels for DeviceKind::cuda; in the CUDA library alone.
const Kernels& cuda_kernels();
/// Kernels for DeviceKind::none: they compute nothing, so that a step can be run to be planned.
const Kernels& null_kernels();
/// The same with what decides of the memory that a step takes, as `real` has it.
Kernels null_kernels(const Kernels& real);
/// And as cuda_kernels() have it, without the CUDA library.
Kernels null_cuda_kernels();

}  // namespace triax
