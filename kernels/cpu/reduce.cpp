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

/// The parts of a block's squares: their sum is that of `parts` exactly when there is no rest.
template <int windows>
struct BlockSum {
  double parts[windows];
  bool rest;
};

/// Sums what the squares hold in windows of bits below 2^top, an upper bound of each square; `shifts` tell
/// where they end. A square of a float is exact in double. Adding and subtracting 1.5 * 2^e rounds to a
/// multiple of 2^(e - 52); what is rounded off is exact too. The windows are so narrow that the sum of kBlock
/// rounded values still fits 53 bits, so each sum is exact in any order (pre-rounding: Demmel and Nguyen
/// 2013, Rump et al. 2008).
template <int windows>
TRIAX_INLINE BlockSum<windows> sum_windows(const float* x, int64_t n, const double* shifts) {
  constexpr int lanes = 8;
  typedef float Floats __attribute__((vector_size(lanes * sizeof(float))));
  typedef double Doubles __attribute__((vector_size(lanes * sizeof(double))));
  typedef uint64_t Bits __attribute__((vector_size(lanes * sizeof(uint64_t))));
  Doubles shift[windows], part[windows];
  Bits rest{};
#pragma GCC unroll 8
  for (int w = 0; w < windows; ++w) {
    part[w] = Doubles{};
    shift[w] = shifts[w] - Doubles{};
  }
  const auto add = [&](const Floats& floats) __attribute__((always_inline)) {
    const Doubles wide = __builtin_convertvector(floats, Doubles);
    Doubles remainder = wide * wide;
#pragma GCC unroll 8
    for (int w = 0; w < windows; ++w) {
      const Doubles rounded = (remainder + shift[w]) - shift[w];
      remainder -= rounded;
      part[w] += rounded;
    }
    rest |= reinterpret_cast<Bits>(remainder);
  };
  Floats values;
  for (; n >= lanes; n -= lanes, x += lanes) {
    std::memcpy(&values, x, sizeof values);
    __builtin_prefetch(x + kBlock);  // memory's time under that of the arithmetic
    add(values);
  }
  values = Floats{};
  std::memcpy(&values, x, sizeof(float) * static_cast<size_t>(n));
  add(values);
  BlockSum<windows> sum{};
#pragma GCC unroll 8
  for (int w = 0; w < windows; ++w)
    for (int lane = 0; lane < lanes; ++lane) sum.parts[w] += part[w][lane];
  for (int lane = 0; lane < lanes; ++lane) sum.rest = sum.rest || rest[lane] != 0;
  return sum;
}
// Values of one size need two windows; those of gradients often differ by more (of normally distributed ones
// a value in 40,000), and five windows hold all squares that 2^-64 of the largest value has.
TRIAX_MULTIVERSION BlockSum<2> sum_two_windows(const float* x, int64_t n, const double* shifts) {
  return sum_windows<2>(x, n, shifts);
}
TRIAX_MULTIVERSION BlockSum<5> sum_five_windows(const float* x, int64_t n, const double* shifts) {
  return sum_windows<5>(x, n, shifts);
}

/// Adds a block's sum; false, and nothing is added, when there is a rest.
template <int windows>
bool add_block(const BlockSum<windows>& block, ExactSum& sum) {
  if (block.rest) return false;
  for (const double part : block.parts) sum.add(part);
  return true;
}

/// One block, exactly.
void add_squares(const float* x, int64_t n, ExactSum& sum) {
  const uint32_t largest = largest_magnitude(x, n);
  if (largest == 0) return;
  if (largest < kInfinity) {
    // A window's lowest bit: a value below 2^top becomes less than 2^(53 - kBlockBits) times that.
    constexpr int window = 53 - kBlockBits - 1;
    const int top = 2 * (std::ilogb(std::bit_cast<float>(largest)) + 1);
    double shifts[5];
    for (int w = 0; w < 5; ++w) shifts[w] = std::ldexp(1.5, top - (w + 1) * window + 52);
    if (add_block(sum_two_windows(x, n, shifts), sum) || add_block(sum_five_windows(x, n, shifts), sum))
      return;
  }
  // Values of extremely different size, or not finite, one by one.
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

TRIAX_MULTIVERSION void round_range(const float* x, bf16* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = round_bf16(x[i]);
}

void cast(Device& device, const Cast& op) {
  device.threads().parallel_for(op.n, kGrain, [&](int64_t begin, int64_t end) {
    round_range(op.x + begin, op.y + begin, end - begin);
  });
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
