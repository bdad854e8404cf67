#include "bench/gemm_rate.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/memory_rate.h"
#include "bench/stopwatch.h"
#include "core/bf16.h"
#include "kernels/kernels.h"

namespace triax {

namespace {

/// FLOP/s of the quickest single product; the most that one of the quickest few reaches when it is done again
/// and again; and whose products were tried.
struct GemmRates {
  double best, held;
  const char* whose;
};

/// oneDNN's sgemm, when its library is on this machine.
class OneDnn {
 public:
  explicit OneDnn(int threads) {
    // Its threads shall sleep between products; read when the OpenMP library is loaded.
    setenv("OMP_WAIT_POLICY", "passive", 0);
    for (const char* name : {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"})
      if (!library_) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library_) return;
    sgemm_ = reinterpret_cast<Sgemm>(dlsym(library_, "dnnl_sgemm"));
    // Looks through the library's own dependencies.
    if (const auto set = reinterpret_cast<void (*)(int)>(dlsym(library_, "omp_set_num_threads")))
      set(threads);
  }
  // The library stays open: OpenMP's threads live in it.

  bool found() const { return sgemm_ != nullptr; }
  void run(const Gemm& op) const {
    sgemm_(op.transpose_a ? 'T' : 'N', op.transpose_b ? 'T' : 'N', op.m, op.n, op.k, 1.0f, op.a.as<float>(),
           op.lda, op.b.as<float>(), op.ldb, op.beta, op.c.as<float>(), op.ldc);
  }

 private:
  using Sgemm = int (*)(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*,
                        int64_t, float, float*, int64_t);
  void* library_ = nullptr;
  Sgemm sgemm_ = nullptr;
};

// Normal numbers in the first `count` bf16 elements.
void fill_bf16(DeviceBlock& block, int64_t count) {
  bf16* const data = reinterpret_cast<bf16*>(block.data());
  for (int64_t i = 0; i < count; ++i) data[i] = round_bf16(1.0f + static_cast<float>(i % 127) / 128);
}

/// Large products of one type, by our GEMM and, in fp32, by oneDNN's.
class LargeProducts {
 public:
  LargeProducts(Device& device, DType dtype)
      : a_(device, most), b_(device, most), c_(device, most), other_(device.threads().size()) {
    const bool narrow = dtype == DType::bf16;
    if (narrow) fill_bf16(a_, most), fill_bf16(b_, most);
    whose_ = narrow           ? "ours alone (of oneDNN's the one in fp32 is called, no other)"
             : other_.found() ? "ours and oneDNN's"
                              : "ours alone (libdnnl is not installed: scripts/setup --bench)";
    struct Size {
      int64_t m, n, k;
    };
    for (const Size& s : {Size{1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {1024, 1024, 1024}}) {
      Gemm op{.transpose_b = true,
              .m = s.m,
              .n = s.n,
              .k = s.k,
              .a = a_.data(),
              .lda = s.k,
              .b = b_.data(),
              .ldb = s.k,
              .c = c_.data(),
              .ldc = s.n};
      if (narrow) {
        op.a = reinterpret_cast<const bf16*>(a_.data());
        op.b = reinterpret_cast<const bf16*>(b_.data());
        op.c = reinterpret_cast<bf16*>(c_.data());
      }
      const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
      products_.push_back({flops, [&device, op] { cpu_kernels().gemm(device, op); }});
      if (other_.found() && !narrow) products_.push_back({flops, [this, op] { other_.run(op); }});
    }
  }

  struct Product {
    double flops;
    std::function<void()> run;
    double rate = 0;  // FLOP/s of the quickest call
  };
  /// Those with the highest rates, the highest first, after about `seconds`.
  std::vector<Product> quickest(size_t count, double seconds) {
    for (Product& p : products_)
      p.rate = p.flops / best_seconds(seconds / static_cast<double>(products_.size()), p.run);
    std::sort(products_.begin(), products_.end(),
              [](const Product& x, const Product& y) { return x.rate > y.rate; });
    return {products_.begin(), products_.begin() + static_cast<ptrdiff_t>(count)};
  }

  const char* whose() const { return whose_; }

 private:
  static constexpr int64_t most = 1024 * 3072;
  DeviceBlock a_, b_, c_;
  OneDnn other_;
  const char* whose_;
  std::vector<Product> products_;
};

GemmRates gemm_rates(Device& device, double seconds, DType dtype) {
  LargeProducts products(device, dtype);
  // Several: the one with the luckiest single call is not always the one that holds most.
  const auto candidates = products.quickest(3, seconds);
  double held = 0;
  for (const auto& p : candidates) held = std::max(held, p.flops / mean_seconds(seconds, p.run));
  // Of the calls of a mean at least one was as quick.
  return {std::max(candidates.front().rate, held), held, products.whose()};
}

}  // namespace

double measured_gemm_rate(Device& device, double seconds, DType dtype) {
  return LargeProducts(device, dtype).quickest(1, seconds).front().rate;
}

void bench_rates(std::ostream& out, int threads, double seconds) {
  const auto device = make_cpu_device(threads);
  const GemmRates fp32 = gemm_rates(*device, seconds, DType::f32);
  const GemmRates narrow = gemm_rates(*device, seconds, DType::bf16);
  const MemoryRates memory = measured_memory_rates(*device, seconds);
  out << nlohmann::json{{"gemm_fp32", fp32.best},      {"gemm_bf16", narrow.best},
                        {"held_fp32", fp32.held},      {"held_bf16", narrow.held},
                        {"products_fp32", fp32.whose}, {"products_bf16", narrow.whose},
                        {"triad", memory.triad},       {"stream", memory.fastest()}}
      << '\n';
}

}  // namespace triax
