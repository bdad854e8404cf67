#include "bench/memory_rate.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench/stopwatch.h"
#include "kernels/cpu/multiversion.h"

namespace triax {

namespace {

constexpr int64_t kElements = 16 << 20;  // of each array
constexpr int64_t kPiece = 1 << 16;      // of a thread at a time; begins at a cache line

// Vectors as wide as the processor's: with narrow ones its cores wait for too few lines at a time.
TRIAX_MULTIVERSION void triad(const float* x, const float* y, float* z, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] + 3.0f * y[i];
}

#if defined(__x86_64__)
[[gnu::target("avx512f")]] void streamed_avx512(const float* x, const float* y, float* z, int64_t n) {
  const __m512 three = _mm512_set1_ps(3.0f);
  for (int64_t i = 0; i < n; i += 16)
    _mm512_stream_ps(z + i, _mm512_fmadd_ps(three, _mm512_loadu_ps(y + i), _mm512_loadu_ps(x + i)));
  _mm_sfence();
}

[[gnu::target("avx")]] void streamed_avx(const float* x, const float* y, float* z, int64_t n) {
  const __m256 three = _mm256_set1_ps(3.0f);
  for (int64_t i = 0; i < n; i += 8)
    _mm256_stream_ps(z + i,
                     _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_mul_ps(three, _mm256_loadu_ps(y + i))));
  _mm_sfence();
}
#endif

// Stores past the caches where the compiler's and the processor's are known, else ordinary ones.
void streamed(const float* x, const float* y, float* z, int64_t n) {
#if defined(__x86_64__)
  static const bool avx512 = __builtin_cpu_supports("avx512f"), avx = __builtin_cpu_supports("avx");
  if (avx512) return streamed_avx512(x, y, z, n);
  if (avx) return streamed_avx(x, y, z, n);
#endif
  triad(x, y, z, n);
}

// Weight, gradient and two moments; the arithmetic is so little that it costs nothing, and stays finite.
TRIAX_MULTIVERSION void update(float* __restrict w, const float* __restrict g, float* __restrict m,
                               float* __restrict v, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    m[i] = 0.5f * (m[i] + g[i]);
    v[i] = 0.5f * (v[i] + g[i]);
    w[i] = 0.5f * (w[i] + m[i]);
  }
}

}  // namespace

MemoryRates measured_memory_rates(Device& device, double seconds) {
  const DeviceBlock a(device, kElements), b(device, kElements), c(device, kElements), d(device, kElements);
  float *w = a.data(), *g = b.data(), *m = c.data(), *v = d.data();
  const auto rate = [&](int arrays, const auto& body) {
    const double time =
        best_seconds(seconds / 3, [&] { device.threads().parallel_for(kElements, kPiece, body); });
    return static_cast<double>(arrays * kElements) * sizeof(float) / time;
  };
  const auto triads = [&](const auto& kernel) {
    return rate(3, [&](int64_t begin, int64_t end) { kernel(g + begin, m + begin, w + begin, end - begin); });
  };
  MemoryRates rates;
  rates.triad = triads(triad);
  rates.streamed = triads(streamed);
  rates.update = rate(7, [&](int64_t begin, int64_t end) {
    update(w + begin, g + begin, m + begin, v + begin, end - begin);
  });
  return rates;
}

}  // namespace triax
