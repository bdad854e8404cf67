#include "checkpoint/stored_type.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/bf16.h"
#include "core/error.h"

namespace triax {
namespace {

// Scaling by a power of two moves the exponent and makes subnormal halves normal floats.
float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112F));
}

uint16_t to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000u,
                 rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
  if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520 on: infinity
  if (rest < 0x38800000u) {  // subnormal: let the addition of 0.5 round to multiples of 2^-24
    const float moved = std::bit_cast<float>(rest) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(moved) - std::bit_cast<uint32_t>(0.5F)));
  }
  const uint32_t rounded = rest + 0xfffu + (rest >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

struct Named {
  StoredType type;
  std::string_view name;
};
constexpr std::array<Named, 3> names = {
    {{StoredType::f32, "fp32"}, {StoredType::bf16, "bf16"}, {StoredType::f16, "fp16"}}};

template <class Convert>
void decode_16(const void* stored, int64_t count, float* out, const Convert& convert) {
  const auto* bytes = static_cast<const unsigned char*>(stored);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    out[i] = convert(bits);
  }
}

template <class Convert>
int64_t encode_16(const float* values, int64_t count, void* stored, uint16_t infinity,
                  const Convert& convert) {
  auto* bytes = static_cast<unsigned char*>(stored);
  int64_t lost = -1;
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = convert(values[i]);
    if (lost < 0 && (bits & 0x7fffu) == infinity && std::isfinite(values[i])) lost = i;
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
  return lost;
}

}  // namespace

std::string_view name_of(StoredType type) {
  return names[static_cast<size_t>(type)].name;
}

StoredType stored_type(std::string_view name) {
  for (const Named& n : names)
    if (n.name == name) return n.type;
  fail_usage("{} is no type of weights; it can be fp32, bf16 or fp16", name);
}

int64_t size_of(StoredType type) {
  return type == StoredType::f32 ? 4 : 2;
}

void decode(StoredType type, const void* stored, int64_t count, float* out) {
  if (type == StoredType::f32)
    std::memcpy(out, stored, static_cast<size_t>(count) * 4);
  else if (type == StoredType::bf16)
    decode_16(stored, count, out, [](uint16_t bits) { return value_of(bf16{bits}); });
  else
    decode_16(stored, count, out, from_half);
}

int64_t encode(StoredType type, const float* values, int64_t count, void* stored) {
  if (type == StoredType::f32) {
    std::memcpy(stored, values, static_cast<size_t>(count) * 4);
    return -1;
  }
  if (type == StoredType::bf16)
    return encode_16(values, count, stored, 0x7f80u, [](float x) { return round_bf16(x).bits; });
  return encode_16(values, count, stored, 0x7c00u, to_half);
}

}  // namespace triax
