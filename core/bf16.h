#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace triax {

/// A float or bfloat16 as a float, exactly.
[[gnu::always_inline]] inline float value_of(float x) {
  return x;
}
[[gnu::always_inline]] inline float value_of(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

/// To the nearest bfloat16, ties to even; a NaN keeps its upper bits and stays a NaN. Written so that loops
/// over it are vectorised.
[[gnu::always_inline]] inline bf16 round_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return bf16{static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}

/// A float as an element of type T, rounded to nearest.
template <class T>
[[gnu::always_inline]] inline T rounded(float x);
template <>
[[gnu::always_inline]] inline float rounded<float>(float x) {
  return x;
}
template <>
[[gnu::always_inline]] inline bf16 rounded<bf16>(float x) {
  return round_bf16(x);
}

}  // namespace triax
