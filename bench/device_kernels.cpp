#include "bench/device_kernels.h"

#include <fmt/ostream.h>

#include <vector>

#include "bench/device_rate.h"
#include "kernels/work.h"

namespace triax {

namespace {

class Table {
 public:
  Table(std::ostream& out, const Backend& backend, bool small)
      : out_(out),
        device_(*backend.device),
        kernels_(*backend.kernels),
        seconds_(small ? 0.0 : 0.1),
        B(small ? 1 : 16),
        S(small ? 64 : 1024),
        V(small ? 1000 : 50304),
        parameters_(small ? 1 << 16 : 32 << 20),
        rate_(measured_product_rate(backend, DType::bf16, small ? 0.0 : 1.0)),
        bandwidth_(measured_copy_bandwidth(device_, small ? 0.0 : 1.0)),
        x_(device_, pool(), DType::bf16),
        y_(device_, pool(), DType::bf16),
        z_(device_, pool(), DType::bf16),
        statistics_(device_, 2 * T + B * S * A, DType::f32),
        weights_(device_, 4 * parameters_, DType::f32),
        ids_(device_.allocate(static_cast<size_t>(T) * sizeof(int32_t), "token ids")) {
    std::vector<int32_t> ids(static_cast<size_t>(T));
    for (size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<int32_t>(t * 7919 % static_cast<size_t>(V));
    device_.write(ids_, ids.data(), ids.size() * sizeof(int32_t));
    fmt::print(out, "bf16 products {:.1f} TFLOP/s, copies {:.0f} GB/s\n", rate_ * 1e-12, bandwidth_ * 1e-9);
  }
  ~Table() { device_.deallocate(ids_, static_cast<size_t>(T) * sizeof(int32_t)); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void products();
  void attention();
  void rows();
  void head();
  void parameters();

 private:
  int64_t pool() const { return std::max(T * F, head_tokens() * V) + std::max(V, T) * H; }
  int64_t head_tokens() const { return std::min<int64_t>(T, 1024); }
  const int32_t* ids() const { return static_cast<const int32_t*>(ids_); }

  // Beside the ceiling that is nearer.
  template <class Op>
  void line(const std::string& what, Kernel<Op> kernel, const Op& op) {
    const KernelWork work = work_of(op);
    const double time = seconds_on(device_, seconds_, [&] { kernel(device_, op); });
    const bool products = work.flops / rate_ > work.bytes / bandwidth_;
    fmt::print(out_, "  {:<28} {:>9.4f} ms  {:>8.1f} {}  {:>4.0f} %\n", what, time * 1e3,
               products ? work.flops / time * 1e-12 : work.bytes / time * 1e-9,
               products ? "TFLOP/s" : "GB/s   ",
               100 * (products ? work.flops / rate_ : work.bytes / bandwidth_) / time);
  }
  Gemm gemm_of(bool ta, bool tb, int64_t m, int64_t n, int64_t k) {
    Gemm op;
    op.transpose_a = ta, op.transpose_b = tb;
    op.m = m, op.n = n, op.k = k;
    op.a = x_.as<bf16>(), op.lda = ta ? m : k;
    op.b = y_.as<bf16>(), op.ldb = tb ? k : n;
    op.ldc = n;
    if (ta)  // a gradient of weights
      op.c = weights_.as<float>(), op.beta = 1;
    else
      op.c = z_.as<bf16>();
    return op;
  }
  void product(const char* what, bool ta, bool tb, int64_t m, int64_t n, int64_t k) {
    const Gemm op = gemm_of(ta, tb, m, n, k);
    line(fmt::format("{} {} x {} x {}", what, m, n, k), kernels_.gemm, op);
  }

  std::ostream& out_;
  Device& device_;
  const Kernels& kernels_;
  const double seconds_;
  const int64_t B, S, V, H = 768, F = 3072, A = 12, D = 64, T = B * S;
  const int64_t parameters_;
  const double rate_, bandwidth_;
  RandomBlock x_, y_, z_, statistics_, weights_;
  void* ids_;
};

void Table::products() {
  struct Layer {
    const char* name;
    int64_t out, in;
  };
  for (const Layer& l : {Layer{"qkv", 3 * H, H}, {"out", H, H}, {"up", F, H}, {"down", H, F}}) {
    const std::string name = l.name;
    product((name + " forward").c_str(), false, true, T, l.out, l.in);
    product((name + " dx").c_str(), false, false, T, l.in, l.out);
    if (l.out * l.in <= 4 * parameters_) product((name + " dw").c_str(), true, false, l.out, l.in, T);
  }
  product("logits", false, true, head_tokens(), V, H);
  if (!kernels_.fuses_gelu || !kernels_.fuses_gelu(DType::bf16, F)) return;
  // Besides what the plain products and GELU take apart.
  const Gemm up = gemm_of(false, true, T, F, H), down = gemm_of(false, false, T, F, H);
  bf16* z = x_.as<bf16>() + T * H;
  line("up forward with GELU", kernels_.gemm_gelu, {up, z});
  line("down dx with GELU's", kernels_.gemm_gelu_backward, {down, z});
}

void Table::attention() {
  line("attention forward", kernels_.attention_forward,
       {B, S, A, A, D, x_.as<bf16>(), y_.as<bf16>(), statistics_.as<float>()});
  line("attention backward", kernels_.attention_backward,
       {B, S, A, A, D, x_.as<bf16>(), y_.as<bf16>(), statistics_.as<float>(), y_.as<bf16>(), z_.as<bf16>()});
}

void Table::rows() {
  bf16 *x = x_.as<bf16>(), *y = y_.as<bf16>(), *z = z_.as<bf16>();
  float *mean = statistics_.as<float>(), *rstd = mean + T, *sums = weights_.as<float>();
  line("norm forward", kernels_.norm_forward, {T, H, x, y, nullptr, x, x, x, 1e-5F, z, mean, rstd});
  line("norm dx", kernels_.norm_backward_input, {T, H, x, y, x, mean, rstd, x, z});
  line("norm dweight", kernels_.norm_backward_weight, {T, H, x, y, mean, rstd, sums, sums + H});
  line("residual sum", kernels_.residual_add, {T, H, x, y, x, z});
  line("GELU forward", kernels_.bias_gelu_forward, {T, F, x, y, z});
  line("GELU backward", kernels_.bias_gelu_backward, {T, F, x, y, x, z});
  line("SwiGLU forward", kernels_.swiglu_forward, {T, F / 2, x, z});
  line("SwiGLU backward", kernels_.swiglu_backward, {T, F / 2, x, y, z});
  line("bias gradient", kernels_.bias_backward, {T, F, x, sums});
  line("rotary positions", kernels_.rope, {B, S, 2 * A, D, 3 * H, z, 10000.0F, false});
  line("embedding forward", kernels_.embedding_forward, {T, H, V, 0, ids(), x, z});
  if (V * H <= 4 * parameters_)
    line("embedding backward", kernels_.embedding_backward, {T, H, V, 0, ids(), x, sums});
}

void Table::head() {
  const int64_t n = head_tokens();
  float *maximum = statistics_.as<float>(), *sums = maximum + T, *target = sums + n;
  const bf16* logits = x_.as<bf16>();
  line("largest logit", kernels_.cross_entropy_max, {n, V, V, logits, maximum});
  line("softmax denominator", kernels_.cross_entropy_sum, {n, V, V, 0, logits, maximum, ids(), sums, target});
  line("gradient of logits", kernels_.cross_entropy_backward,
       {n, V, V, 0, logits, maximum, sums, ids(), 1.0F, z_.as<bf16>()});
}

void Table::parameters() {
  float* w = weights_.as<float>();
  const int64_t n = parameters_;
  const UpdateScalars scalars{.lr = 1e-4F, .bias_correction1 = 0.5F, .bias_correction2 = 0.5F};
  constexpr size_t behind = 64, bytes = behind + sizeof(ExactSum);
  static_assert(sizeof scalars <= behind);
  void* at = device_.allocate(bytes, "a measurement");
  device_.write(at, &scalars, sizeof scalars);
  auto* sum = reinterpret_cast<ExactSum*>(static_cast<char*>(at) + behind);
  device_.fill_zero(sum, sizeof *sum);
  line("squared norm", kernels_.squared_norm, {n, w, sum});
  device_.fill_zero(w + 3 * n, static_cast<size_t>(n) * sizeof(float));  // second moments are not negative
  line("AdamW", kernels_.adamw,
       {n, w, w + n, w + 2 * n, w + 3 * n, 0.9F, 0.95F, 1e-8F, 0.1F, static_cast<UpdateScalars*>(at)});
  line("sum of gradients", kernels_.add, {n, w, w + n});
  line("rounding to bf16", kernels_.cast, {std::min(n, pool()), w, z_.as<bf16>()});
  device_.deallocate(at, bytes);
}

}  // namespace

void bench_device_kernels(std::ostream& out, const Backend& backend, bool small) {
  Table table(out, backend, small);
  table.products();
  table.attention();
  table.rows();
  table.head();
  table.parameters();
}

}  // namespace triax
