#include "bench/kernels.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "bench/gemm_rate.h"
#include "bench/memory_rate.h"
#include "bench/stopwatch.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/kernels.h"
#include "parallel/vocabulary.h"

namespace triax {

namespace {

// GPT-2 124M, B 4, S 256.
constexpr int64_t B = 4, S = 256, T = B * S, H = 768, F = 3072, A = 12, D = 64, V = 50257;
constexpr int64_t kParameters = 16 << 20;  // elements of one optimizer call
constexpr double kSeconds = 0.2;           // for each line

/// Rows of one chunk of the logits, as the program's head cuts them.
int64_t tokens_of_head(Device& device) {
  const Grid one_rank({});
  ParamStore params(one_rank, 0, device);
  VocabularyHead head("head", V, H, false, 0.02f);
  head.declare(params);
  return head.chunk_tokens(T);
}

/// FLOP/s of matrix products, bytes/s of memory.
struct Machine {
  double gemm_f32, gemm_bf16, bytes;
};

/// Two pools of random values: operands are taken from the first, results go to the second.
class Table {
 public:
  Table(std::ostream& out, Device& device, const Machine& machine)
      : out_(out),
        device_(device),
        machine_(machine),
        gemm_rate_(machine.gemm_f32),
        head_(tokens_of_head(device)),
        x_(device, kPool),
        y_(device, kPool),
        small_(device, 4 * kParameters) {
    ids_.resize(T);
    for (int64_t t = 0; t < T; ++t) ids_[static_cast<size_t>(t)] = static_cast<int32_t>(t * 7919 % V);
  }

  void gemms();
  void bf16_gemms();
  void rows();
  void attention();
  void head();
  void parameters();

 private:
  static constexpr int64_t kPool = 64 << 20;

  template <class Op>
  double time(Kernel<Op> kernel, const Op& op) {
    return best_seconds(kSeconds, [&] { kernel(device_, op); });
  }
  void flops(const std::string& what, double count, double seconds) {
    out_ << fmt::format("  {:<42} {:>9.3f} ms {:>8.1f} GFLOP/s {:>5.0f} %\n", what, seconds * 1e3,
                        count / seconds * 1e-9, 100 * count / seconds / gemm_rate_);
  }
  void bytes(const std::string& what, double floats, double seconds) {
    const double count = floats * sizeof(float);
    out_ << fmt::format("  {:<42} {:>9.3f} ms {:>8.1f} GB/s    {:>5.0f} %\n", what, seconds * 1e3,
                        count / seconds * 1e-9, 100 * count / seconds / machine_.bytes);
  }
  void gemm(const char* what, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float beta,
            const float* bias = nullptr) {
    const Gemm op = product(ta, tb, m, n, k, beta, bias);
    flops(fmt::format("{} {}{} {} x {} x {}", what, ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k),
          2.0 * static_cast<double>(m * n * k), time(kernels_.gemm, op));
  }
  /// The same in bf16 (a gradient of weights, the product with A transposed, is fp32): by vdpbf16ps where the
  /// processor has it, and by conversion to fp32 while packing.
  void bf16_gemm(const char* what, bool ta, bool tb, int64_t m, int64_t n, int64_t k) {
    Gemm op = product(ta, tb, m, n, k, 0, nullptr);
    op.a = reinterpret_cast<const bf16*>(x_.data());
    op.b = reinterpret_cast<const bf16*>(x_.data()) + m * k;
    if (!ta) op.c = reinterpret_cast<bf16*>(y_.data());
    const std::string name =
        fmt::format("{} {}{} {} x {} x {}", what, ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k);
    const double count = 2.0 * static_cast<double>(m * n * k);
    const auto by = [&](const std::string& way, const cpu::GemmCode& code) {
      flops(name + way, count, best_seconds(kSeconds, [&] { cpu::gemm_by(device_, op, code); }));
    };
    if (cpu::has_avx512_bf16()) by(", vdpbf16ps", cpu::gemm_avx512_bf16);
    by(", converted", cpu::gemm_code(DType::f32));
  }
  Gemm product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float beta, const float* bias) {
    return {.transpose_a = ta,
            .transpose_b = tb,
            .m = m,
            .n = n,
            .k = k,
            .a = x_.data(),
            .lda = ta ? m : k,
            .b = x_.data() + m * k,
            .ldb = tb ? k : n,
            .c = y_.data(),
            .ldc = n,
            .beta = beta,
            .bias = bias};
  }

  std::ostream& out_;
  Device& device_;
  const Kernels& kernels_ = cpu_kernels();
  const Machine machine_;
  double gemm_rate_;  ///< of the type of products at hand
  const int64_t head_;
  DeviceBlock x_, y_, small_;
  std::vector<int32_t> ids_;
};

void Table::gemms() {
  // Gradients of weights overwrite, as the first products of a step do; the head's later chunks add.
  out_ << "matrix products, share of the machine's rate\n";
  struct Layer {
    const char* name;
    int64_t out, in;
  };
  for (const Layer& l :
       {Layer{"qkv", 3 * H, H}, {"attention out", H, H}, {"mlp up", F, H}, {"mlp down", H, F}}) {
    gemm(l.name, false, true, T, l.out, l.in, 0, small_.data());
    gemm("  dX", false, false, T, l.in, l.out, 0);
    gemm("  dW", true, false, l.out, l.in, T, 0);
  }
  gemm("logits", false, true, head_, V, H, 0);
  gemm("  dX", false, false, head_, H, V, 0);
  gemm("  dW", true, false, V, H, head_, 0);
  gemm("  dW, added", true, false, V, H, head_, 1);
  gemm("small", false, true, 256, 128, 128, 0);
  gemm("small", false, true, 256, 512, 128, 0);
  gemm("  dX", false, false, 256, 128, 512, 0);
  gemm("  dW", true, false, 512, 128, 256, 0);
}

void Table::bf16_gemms() {
  out_ << "matrix products in bf16, share of the machine's bf16 rate\n";
  gemm_rate_ = machine_.gemm_bf16;
  for (int64_t i = 0; i < 2 * kPool; ++i)  // any normal numbers will do
    reinterpret_cast<bf16*>(x_.data())[i] = round_bf16(1.0f + static_cast<float>(i % 127) / 128);
  bf16_gemm("mlp up", false, true, T, F, H);
  bf16_gemm("  dX", false, false, T, H, F);
  bf16_gemm("  dW", true, false, F, H, T);
  bf16_gemm("logits", false, true, head_, V, H);
  bf16_gemm("small", false, true, 256, 512, 128);
  bf16_gemm("  dX", false, false, 256, 128, 512);
  bf16_gemm("  dW", true, false, 512, 128, 256);
}

void Table::rows() {
  out_ << "rows, share of the memory's rate (above 100 %: it stays in a cache)\n";
  float *x = x_.data(), *y = y_.data(), *p = small_.data(), *stat = p + 3 * F;
  constexpr double th = static_cast<double>(T * H), tf = static_cast<double>(T * F);
  const float eps = 1e-5f;
  bytes("residual add", 3 * th, time(kernels_.residual_add, {T, H, x, x + T * H, p, y}));
  bytes("layer norm with residual sum", 4 * th,
        time(kernels_.norm_forward, {T, H, x, x + T * H, p, y + T * H, p, p, eps, y, stat, stat + T}));
  bytes("layer norm dX", 4 * th,
        time(kernels_.norm_backward_input, {T, H, x, x + T * H, p, stat, stat + T, x + 2 * T * H, y}));
  bytes("layer norm dW", 2 * th,
        time(kernels_.norm_backward_weight, {T, H, x, x + T * H, stat, stat + T, y, y + H}));
  bytes("bias + GELU", 2 * tf, time(kernels_.bias_gelu_forward, {T, F, x, p, y}));
  bytes("bias + GELU dX", 3 * tf, time(kernels_.bias_gelu_backward, {T, F, x, p, x + T * F, y}));
  bytes("SwiGLU", 3 * tf, time(kernels_.swiglu_forward, {T, F, x, y}));
  bytes("SwiGLU dX", 5 * tf, time(kernels_.swiglu_backward, {T, F, x, x + 2 * T * F, y}));
  bytes("bias gradient", tf, time(kernels_.bias_backward, {T, F, x, y}));
  bytes("rope", 2 * 2 * th, time(kernels_.rope, {B, S, 2 * A, D, 3 * H, y, 10000.0f, false}));
  bytes("embedding", 2 * th, time(kernels_.embedding_forward, {T, H, V, 0, ids_.data(), x, y}));
  bytes("embedding gradient", 3 * th, time(kernels_.embedding_backward, {T, H, V, 0, ids_.data(), x, y}));
  const RandomStream bits(1, "bench");
  const uint64_t domain = bits.domain();
  bytes("bias + dropout", 2 * th,
        time(kernels_.dropout, {T, H, x, p, y, bits.key(), &domain, 0, 429496730U, 1 / 0.9F}));
  bytes("positions", 2 * th, time(kernels_.position_forward, {B * S, S, H, 0, p, y}));
  bytes("positions gradient", th, time(kernels_.position_backward, {B * S, S, H, 0, x, y}));
}

void Table::attention() {
  out_ << "attention, share of the machine's GEMM rate (only the causal half is counted)\n";
  float *x = x_.data(), *y = y_.data(), *lse = small_.data();
  for (const int64_t s : {S, 4 * S}) {
    const int64_t b = T / s;
    const int64_t pairs = s * (s + 1) / 2;
    const double half = 2.0 * static_cast<double>(b * A * pairs * D);  // one product
    float* out = y + 3 * T * H;
    flops(fmt::format("attention, {} x {}", b, s), 2 * half,
          time(kernels_.attention_forward, {b, s, A, A, D, x, out, lse}));
    flops("  gradients", 5 * half,
          time(kernels_.attention_backward, {b, s, A, A, D, x, out, lse, x + 3 * T * H, y}));
  }
}

void Table::head() {
  out_ << "cross-entropy on a chunk of the logits, share of the memory's rate\n";
  const double logits = static_cast<double>(head_ * V);
  float *x = x_.data(), *stat = small_.data();
  float *sum = stat + T, *target = stat + 2 * T;
  bytes("maximum", logits, time(kernels_.cross_entropy_max, {head_, V, V, x, stat}));
  bytes("sum of exponentials", logits,
        time(kernels_.cross_entropy_sum, {head_, V, V, 0, x, stat, ids_.data(), sum, target}));
  bytes("gradient", 2 * logits,
        time(kernels_.cross_entropy_backward, {head_, V, V, 0, x, stat, sum, ids_.data(), 1.0f, y_.data()}));
}

void Table::parameters() {
  out_ << "parameters, share of the memory's rate\n";
  constexpr double n = static_cast<double>(kParameters);
  float *x = x_.data(), *y = y_.data(), *v = small_.data();
  for (int64_t i = 0; i < kParameters; ++i) v[i] = 1e-4f;  // second moments are not negative
  const UpdateScalars scalars{.lr = 1e-3f, .bias_correction1 = 0.5f, .bias_correction2 = 0.5f};
  bytes("AdamW", 7 * n,
        time(kernels_.adamw, {.n = kParameters,
                              .weight = y,
                              .grad = x,
                              .exp_avg = y + kParameters,
                              .exp_avg_sq = v,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .epsilon = 1e-8f,
                              .weight_decay = 0.1f,
                              .scalars = &scalars}));
  ExactSum sum;
  int64_t index = -1;
  bytes("squared norm", n, time(kernels_.squared_norm, {kParameters, x, &sum}));
  bytes("add", 3 * n, time(kernels_.add, {kParameters, x, y}));
  bytes("search for NaN", n, time(kernels_.find_non_finite, {kParameters, x, &index}));
}

}  // namespace

void bench_kernels(std::ostream& out, int threads) {
  auto device = make_cpu_device(threads);
  const MemoryRates memory = measured_memory_rates(*device, 1.0);
  const Machine machine{measured_gemm_rate(*device, 2.0), measured_gemm_rate(*device, 2.0, DType::bf16),
                        memory.fastest()};
  out << fmt::format(
      "{} thread{}: large matrix products {:.0f} GFLOP/s, in bf16 {:.0f}; memory {:.1f} GB/s (triad {:.1f}, "
      "past "
      "the caches {:.1f}, updates {:.1f})\n",
      threads, threads == 1 ? "" : "s", machine.gemm_f32 * 1e-9, machine.gemm_bf16 * 1e-9,
      memory.fastest() * 1e-9, memory.triad * 1e-9, memory.streamed * 1e-9, memory.update * 1e-9);
  Table table(out, *device, machine);
  table.gemms();
  table.rows();
  table.attention();
  table.head();
  table.parameters();
  table.bf16_gemms();
}

}  // namespace triax
