#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace triax {

/// Element types of tensors and messages.
enum class DType : uint8_t { f32, bf16, f64, i32, i64, u8 };

/// Bytes of one element.
size_t size_of(DType dtype);
/// "f32", "bf16", ...
std::string_view name_of(DType dtype);

/// A bfloat16 in memory: the upper half of an IEEE float. Arithmetic is done in float.
struct bf16 {
  uint16_t bits;
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};

}  // namespace triax
