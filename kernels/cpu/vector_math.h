#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

/// All bits set where the comparison holds: of one value, or of each lane.
template <class I>
TRIAX_INLINE I mask_of(bool holds) {
  return holds ? ~I{0} : I{0};
}
template <class I, class Lanes>
requires(!std::is_same_v<Lanes, bool>) TRIAX_INLINE I mask_of(const Lanes& holds) {
  return __builtin_bit_cast(I, holds);
}

/// e^x for a float, or for each lane of a vector of floats; I is the unsigned type of the same size. Within
/// 2 units in the last place wherever e^x is a normal number, 0 below (x < -87.34), infinity above; NaN stays
/// NaN. e^x = 2^n e^r with |r| <= ln(2)/2 and the polynomial of Cephes' expf. The ends are chosen by masks:
/// a choice between values would be compiled as a branch, and loops over it not vectorised.
template <class I, class F>
TRIAX_INLINE F exp_lanes(F x) {
  const F magic = F{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const F shifted = x * 1.44269504088896341f + magic;
  const F n = shifted - magic;
  F r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  F p = F{} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // p lies in (0.7, 1.5): adding n to its exponent multiplies it by 2^n, exactly, up to the largest float.
  const I value =
      __builtin_bit_cast(I, p) + ((__builtin_bit_cast(I, shifted) - __builtin_bit_cast(I, magic)) << 23);
  const I not_high = mask_of<I>(x <= F{} + 88.7228317f), not_low = mask_of<I>(x >= F{} - 87.3365447f);
  const I beyond = __builtin_bit_cast(I, x + std::numeric_limits<float>::infinity());  // infinity, or NaN
  return __builtin_bit_cast(F, (value & not_high & not_low) | (beyond & ~not_high));
}

/// e^x of one float: see exp_lanes.
TRIAX_INLINE float exp_of(float x) {
  return exp_lanes<uint32_t>(x);
}

}  // namespace triax::cpu
