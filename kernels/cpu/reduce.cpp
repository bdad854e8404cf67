#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

namespace {

constexpr int64_t kGrain = 1 << 16;  // elements of a task
constexpr int64_t kBlock = 2048;     // elements of one exact block sum
constexpr int kBlockBits = 11;       // log2 of kBlock
constexpr uint32_t kInfinity = 0x7f800000;

/// Largest |x| as bits, which order like the values; an infinity or NaN is the largest of all.
TRIAX_MULTIVERSION uint32_t largest_magnitude(const float* x, int64_t n) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    largest = std::max(largest, bits & 0x7fffffff);
  }
  return largest;
}

/// The parts of a block's squares: their sum is high + low exactly when rest is 0.
struct BlockSum {
  double high, low, rest;
};

/// Sums what the squares hold in two windows of bits below 2^top, an upper bound of each square. A square of
/// a float is exact in double. Adding and subtracting 1.5 * 2^e rounds to a multiple of 2^(e - 52); what is
/// rounded off is exact too. The windows are so wide that the sum of kBlock rounded values still fits 53
/// bits, so each sum is exact in any order (pre-rounding: Demmel and Nguyen 2013, Rump et al. 2008).
TRIAX_MULTIVERSION BlockSum sum_windows(const float* x, int64_t n, double shift_high, double shift_low) {
  double high = 0, low = 0, rest = 0;
#pragma omp simd reduction(+ : high, low, rest)
  for (int64_t i = 0; i < n; ++i) {
    const double square = static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const double upper = (square + shift_high) - shift_high;
    const double remainder = square - upper;
    const double lower = (remainder + shift_low) - shift_low;
    high += upper;
    low += lower;
    rest += std::fabs(remainder - lower);
  }
  return {high, low, rest};
}

/// One block, exactly.
void add_squares(const float* x, int64_t n, ExactSum& sum) {
  const uint32_t largest = largest_magnitude(x, n);
  if (largest == 0) return;
  if (largest < kInfinity) {
    // The windows' lowest bits: a value below 2^top becomes less than 2^(53 - kBlockBits) times that.
    constexpr int window = 53 - kBlockBits - 1;
    const int top = 2 * (std::ilogb(std::bit_cast<float>(largest)) + 1);
    const auto shift = [](int lowest) { return std::ldexp(1.5, lowest + 52); };
    const BlockSum part = sum_windows(x, n, shift(top - window), shift(top - 2 * window));
    if (part.rest == 0) {
      sum.add(part.high);
      sum.add(part.low);
      return;
    }
  }
  // Values of very different size, or not finite, one by one.
  for (int64_t i = 0; i < n; ++i) sum.add(static_cast<double>(x[i]) * static_cast<double>(x[i]));
}

}  // namespace

void squared_norm(Device& device, const SquaredNorm& op) {
  std::mutex mutex;
  const auto count_non_finite = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double square = static_cast<double>(op.x[i]) * static_cast<double>(op.x[i]);
      if (std::isfinite(square)) continue;
      std::lock_guard lock(mutex);
      op.sum->add(square);
    }
  };
  device.threads().parallel_for(op.n, kGrain, [&](int64_t begin, int64_t end) {
    if (op.only_non_finite) {
      if (largest_magnitude(op.x + begin, end - begin) >= kInfinity) count_non_finite(begin, end);
      return;
    }
    ExactSum sum;
    for (int64_t i = begin; i < end; i += kBlock) add_squares(op.x + i, std::min(kBlock, end - i), sum);
    std::lock_guard lock(mutex);
    op.sum->add(sum);
  });
}

void normalise_sums(Device&, const NormaliseSums& op) {
  for (int64_t i = 0; i < op.n; ++i) op.sums[i].normalise();
}

namespace {

TRIAX_MULTIVERSION void add_range(const float* x, float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace

void add(Device& device, const Add& op) {
  device.threads().parallel_for(
      op.n, kGrain, [&](int64_t begin, int64_t end) { add_range(op.x + begin, op.y + begin, end - begin); });
}

namespace {

TRIAX_MULTIVERSION void cast_range(const float* x, bf16* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = round_bf16(x[i]);
}

}  // namespace

void cast(Device& device, const Cast& op) {
  device.threads().parallel_for(
      op.n, kGrain, [&](int64_t begin, int64_t end) { cast_range(op.x + begin, op.y + begin, end - begin); });
}

void find_non_finite(Device& device, const FindNonFinite& op) {
  std::mutex mutex;
  int64_t first = op.n;
  device.threads().parallel_for(op.n, kGrain, [&](int64_t begin, int64_t end) {
    if (largest_magnitude(op.x + begin, end - begin) < kInfinity) return;
    int64_t i = begin;
    while (std::isfinite(op.x[i])) ++i;
    std::lock_guard lock(mutex);
    first = std::min(first, i);
  });
  *op.index = first < op.n ? first : -1;
}

}  // namespace triax::cpu
