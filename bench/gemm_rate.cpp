#include "bench/gemm_rate.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/stopwatch.h"
#include "core/bf16.h"
#include "kernels/kernels.h"

namespace triax {

namespace {

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

}  // namespace

double measured_gemm_rate(Device& device, double seconds, DType dtype) {
  constexpr int64_t most = 1024 * 3072;
  const bool narrow = dtype == DType::bf16;
  DeviceBlock a(device, most), b(device, most), c(device, most);
  if (narrow) fill_bf16(a, most), fill_bf16(b, most);
  const OneDnn other(device.threads().size());
  struct Size {
    int64_t m, n, k;
  };
  const Size sizes[] = {{1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {1024, 1024, 1024}};
  const bool two = other.found() && !narrow;
  const double share = seconds / static_cast<double>(std::size(sizes) * (two ? 2 : 1));
  double best = 0;
  for (const Size& s : sizes) {
    Gemm op{.transpose_b = true,
            .m = s.m,
            .n = s.n,
            .k = s.k,
            .a = a.data(),
            .lda = s.k,
            .b = b.data(),
            .ldb = s.k,
            .c = c.data(),
            .ldc = s.n};
    if (narrow) {
      op.a = reinterpret_cast<const bf16*>(a.data());
      op.b = reinterpret_cast<const bf16*>(b.data());
      op.c = reinterpret_cast<bf16*>(c.data());
    }
    const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
    best = std::max(best, flops / best_seconds(share, [&] { cpu_kernels().gemm(device, op); }));
    if (two) best = std::max(best, flops / best_seconds(share, [&] { other.run(op); }));
  }
  return best;
}

double measured_triad_bandwidth(Device& device, double seconds) {
  constexpr int64_t n = 16 << 20;
  DeviceBlock a(device, n), b(device, n), c(device, n);
  const float* x = b.data();
  const float* y = c.data();
  float* z = a.data();
  const double time = best_seconds(seconds, [&] {
    device.threads().parallel_for(n, 1 << 16, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) z[i] = x[i] + 3.0f * y[i];
    });
  });
  return 3.0 * n * sizeof(float) / time;
}

void bench_rates(std::ostream& out, int threads, double seconds) {
  const auto device = make_cpu_device(threads);
  const double fp32 = measured_gemm_rate(*device, seconds);
  const double narrow = measured_gemm_rate(*device, seconds, DType::bf16);
  const double triad = measured_triad_bandwidth(*device, seconds);
  out << nlohmann::json{{"gemm_fp32", fp32}, {"gemm_bf16", narrow}, {"triad", triad}} << '\n';
}

}  // namespace triax
