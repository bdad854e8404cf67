#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/squares.h"
#include "kernels/cpu/tasks.h"

namespace triax::cpu {

namespace {

constexpr int64_t kGrain = 1 << 16;     // elements of a task
constexpr int64_t kSumGrain = 1 << 18;  // most elements of a task that sums squares
constexpr int64_t kBlock = 2048;        // elements of one exact block sum
constexpr int kBlockBits = 11;          // log2 of kBlock
constexpr uint32_t kInfinity = 0x7f800000;

TRIAX_MULTIVERSION Magnitudes magnitudes(const float* x, int64_t n) {
  uint32_t largest = 0, below_smallest = ~uint32_t{0};
#pragma omp simd reduction(max : largest) reduction(min : below_smallest)
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    largest = std::max(largest, bits);
    below_smallest = std::min(below_smallest, bits - 1);  // a zero is the largest here
  }
  return {largest, below_smallest};
}

constexpr int lanes = 8;
typedef float Floats __attribute__((vector_size(lanes * sizeof(float))));
typedef double Doubles __attribute__((vector_size(lanes * sizeof(double))));
typedef uint64_t Bits __attribute__((vector_size(lanes * sizeof(uint64_t))));

/// Hands f the values, eight at a time, the last ones with zeros behind them.
template <class F>
TRIAX_INLINE void for_each_eight(const float* x, int64_t n, const F& f) {
  Floats values;
  for (; n >= lanes; n -= lanes, x += lanes) {
    std::memcpy(&values, x, sizeof values);
    __builtin_prefetch(x + squares_ahead);
    f(__builtin_convertvector(values, Doubles));
  }
  values = Floats{};
  std::memcpy(&values, x, sizeof(float) * static_cast<size_t>(n));
  f(__builtin_convertvector(values, Doubles));
}

TRIAX_INLINE double sum_of(const Doubles& x) {
  double sum = 0;
  for (int lane = 0; lane < lanes; ++lane) sum += x[lane];
  return sum;
}

// A square of a float is exact in double. Adding and subtracting 1.5 * 2^e rounds to a multiple of 2^(e -
// 52); what is rounded off is exact too. Windows of bits below 2^top, an upper bound of each square, are so
// narrow that the sum of kBlock rounded values still fits 53 bits, so each sum is exact in any order
// (pre-rounding: Demmel and Nguyen 2013, Rump et al. 2008).

/// A window's lowest bit: a value below 2^top becomes less than 2^(53 - kBlockBits) times that.
constexpr int kWindow = 53 - kBlockBits - 1;
/// What is left below the first window is at most 2^(top - kWindow - 1), and has no bit below 2^(2 (e -
/// 23)) where no value is smaller than 2^e: with top at most 2 e + kSpread, kBlock of them fit 53 bits, too.
constexpr int kSpread = 53 - kBlockBits + kWindow + 1 - 46;

/// Of values whose sizes differ so little: two sums, without a look for a rest.
TRIAX_MULTIVERSION BlockSum<2> sum_of_like_sizes(const float* x, int64_t n, double first_shift) {
  const Doubles shift = first_shift - Doubles{};
  Doubles high{}, low{};
  for_each_eight(
      x, n, [&](const Doubles& wide) __attribute__((always_inline)) {
        const Doubles rounded = (wide * wide + shift) - shift;
        high += rounded;
        low += wide * wide - rounded;
      });
  return {{sum_of(high), sum_of(low)}, false};
}

/// Of others: five windows hold all squares that 2^-64 of the largest value has.
TRIAX_MULTIVERSION BlockSum<5> sum_five_windows(const float* x, int64_t n, const double* shifts) {
  constexpr int windows = 5;
  Doubles shift[windows], part[windows];
  Bits rest{};
  for (int w = 0; w < windows; ++w) {
    part[w] = Doubles{};
    shift[w] = shifts[w] - Doubles{};
  }
  for_each_eight(
      x, n, [&](const Doubles& wide) __attribute__((always_inline)) {
        Doubles remainder = wide * wide;
#pragma GCC unroll 8
        for (int w = 0; w < windows; ++w) {
          const Doubles rounded = (remainder + shift[w]) - shift[w];
          remainder -= rounded;
          part[w] += rounded;
        }
        rest |= reinterpret_cast<Bits>(remainder);
      });
  BlockSum<windows> sum{};
  for (int w = 0; w < windows; ++w) sum.parts[w] = sum_of(part[w]);
  for (int lane = 0; lane < lanes; ++lane) sum.rest = sum.rest || rest[lane] != 0;
  return sum;
}

/// Adds a block's sum; false, and nothing is added, when there is a rest.
template <int windows>
bool add_block(const BlockSum<windows>& block, ExactSum& sum) {
  if (block.rest) return false;
  for (const double part : block.parts) sum.add(part);
  return true;
}

/// 1.5 * 2^e, for a normal double.
double shift_of(int e) {
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + e) << 52 | uint64_t{1} << 51);
}
/// The exponent of a finite float that is not zero: 2^e <= |x| (a denormal's is the least), from its bits.
int exponent_of(uint32_t bits) {
  return bits >> 23 ? static_cast<int>(bits >> 23) - 127 : -149;
}

/// Of this processor; null where it has neither AVX-512 nor AVX2.
const SquaresKernel* const squares = [] {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &squares_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &squares_avx2();
#endif
  return static_cast<const SquaresKernel*>(nullptr);
}();

/// Adds the squares of [x, x + n), exactly, whose magnitudes are `own`; of the block that follows, of
/// `next_n` <= kBlock values, which may be none, it returns the magnitudes.
Magnitudes add_squares(const float* x, int64_t n, const Magnitudes& own, int64_t next_n, ExactSum& sum) {
  const float* next = x + n;
  if (own.largest == 0) return magnitudes(next, next_n);
  if (own.largest < kInfinity) {
    const int top = 2 * (static_cast<int>(own.largest >> 23) - 126),
              bottom = 2 * exponent_of(own.below_smallest + 1);
    const auto shift = [&](int window) { return shift_of(top - (window + 1) * kWindow + 52); };
    if (top - bottom <= kSpread) {
      if (squares) {
        Magnitudes of_next;
        const int64_t whole = n / squares->step * squares->step;
        const bool same = next_n == whole;  // else the magnitudes of x, which may be read, are of no use
        add_block(squares->sum_of_like_sizes(x, whole, shift(0), same ? next : x, of_next), sum);
        if (whole < n) add_block(sum_of_like_sizes(x + whole, n - whole, shift(0)), sum);
        return same ? of_next : magnitudes(next, next_n);
      }
      add_block(sum_of_like_sizes(x, n, shift(0)), sum);
      return magnitudes(next, next_n);
    }
    const double shifts[] = {shift(0), shift(1), shift(2), shift(3), shift(4)};
    if (add_block(sum_five_windows(x, n, shifts), sum)) return magnitudes(next, next_n);
  }
  // Values of extremely different size, or not finite, one by one.
  for (int64_t i = 0; i < n; ++i) sum.add(static_cast<double>(x[i]) * static_cast<double>(x[i]));
  return magnitudes(next, next_n);
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
  const int64_t grain = even_grain(op.n, device.threads().size(), kSumGrain, kBlock);
  device.threads().parallel_for(op.n, grain, [&](int64_t begin, int64_t end) {
    if (op.only_non_finite) {
      if (magnitudes(op.x + begin, end - begin).largest >= kInfinity) count_non_finite(begin, end);
      return;
    }
    ExactSum sum;
    Magnitudes sizes = magnitudes(op.x + begin, std::min(kBlock, end - begin));
    for (int64_t i = begin; i < end; i += kBlock)
      sizes = add_squares(op.x + i, std::min(kBlock, end - i), sizes,
                          std::clamp<int64_t>(end - i - kBlock, 0, kBlock), sum);
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
    if (magnitudes(op.x + begin, end - begin).largest < kInfinity) return;
    int64_t i = begin;
    while (std::isfinite(op.x[i])) ++i;
    std::lock_guard lock(mutex);
    first = std::min(first, i);
  });
  *op.index = first < op.n ? first : -1;
}

}  // namespace triax::cpu
