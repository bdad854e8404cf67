#include "bench/gemm_rate.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "bench/stopwatch.h"
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

}  // namespace

double measured_gemm_rate(Device& device, double seconds) {
  constexpr int64_t most = 1024 * 3072;
  DeviceBlock a(device, most), b(device, 3072 * 3072), c(device, most);
  const OneDnn other(device.threads().size());
  struct Size {
    int64_t m, n, k;
  };
  const Size sizes[] = {{1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {1024, 1024, 1024}};
  const int libraries = other.found() ? 2 : 1;
  const double share = seconds / (static_cast<double>(std::size(sizes)) * libraries);
  double best = 0;
  for (const Size& s : sizes) {
    const Gemm op{.transpose_b = true,
                  .m = s.m,
                  .n = s.n,
                  .k = s.k,
                  .a = a.data(),
                  .lda = s.k,
                  .b = b.data(),
                  .ldb = s.k,
                  .c = c.data(),
                  .ldc = s.n};
    const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
    best = std::max(best, flops / best_seconds(share, [&] { cpu_kernels().gemm(device, op); }));
    if (other.found()) best = std::max(best, flops / best_seconds(share, [&] { other.run(op); }));
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

}  // namespace triax
