#include "bench/device_rate.h"

#include <vector>

#include "core/bf16.h"

namespace triax {

RandomBlock::RandomBlock(Device& device, int64_t elements, DType dtype)
    : device_(device),
      dtype_(dtype),
      bytes_(static_cast<size_t>(elements) * size_of(dtype)),
      data_(device.allocate(bytes_, "a measurement")) {
  constexpr size_t piece = size_t{4} << 20;  // repeats: far more than a cache line, and made quickly
  std::vector<float> values(piece / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((i * 2654435761) >> 8 & 0xffff) * 3e-6F - 0.1F;
  std::vector<bf16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), [](float x) { return round_bf16(x); });
  const void* source = dtype == DType::bf16 ? static_cast<const void*>(rounded.data()) : values.data();
  const size_t length = values.size() * size_of(dtype);
  for (size_t at = 0; at < bytes_; at += length)
    device.write(static_cast<char*>(data_) + at, source, std::min(length, bytes_ - at));
}

Elements RandomBlock::elements() const {
  if (dtype_ == DType::bf16) return as<bf16>();
  return as<float>();
}

double measured_product_rate(const Backend& backend, DType dtype, double seconds) {
  Device& device = *backend.device;
  double best = 0;
  for (int64_t n = 256; n <= 8192; n *= 2) {
    const RandomBlock a(device, n * n, dtype), b(device, n * n, dtype), c(device, n * n, dtype);
    Gemm op;
    op.transpose_b = true;
    op.m = op.n = op.k = op.lda = op.ldb = op.ldc = n;
    op.a = a.elements(), op.b = b.elements(), op.c = c.elements();
    const double time = seconds_on(device, seconds / 6, [&] { backend.kernels->gemm(device, op); });
    best = std::max(best, 2.0 * static_cast<double>(n * n * n) / time);
    if (time > 0.05) break;
  }
  return best;
}

double measured_copy_bandwidth(Device& device, double seconds) {
  double best = 0;
  for (int64_t n = 1 << 20; n <= int64_t{256} << 20; n *= 4) {
    const RandomBlock from(device, n, DType::f32), to(device, n, DType::f32);
    const size_t bytes = static_cast<size_t>(n) * sizeof(float);
    const double time =
        seconds_on(device, seconds / 5, [&] { device.copy(to.as<void>(), from.as<void>(), bytes); });
    best = std::max(best, 2.0 * static_cast<double>(bytes) / time);
    if (time > 0.05) break;
  }
  return best;
}

}  // namespace triax
