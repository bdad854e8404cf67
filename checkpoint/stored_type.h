#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace triax {

/// Element types of the safetensors files that Triax reads values from and writes.
enum class StoredType { f32, bf16, f16 };

/// As the job file and the command line say it: "fp32", "bf16", "fp16".
std::string_view name_of(StoredType type);
/// The inverse; throws Error(usage) that lists the valid ones.
StoredType stored_type(std::string_view name);
/// Bytes of an element.
int64_t size_of(StoredType type);

/// `count` elements, little-endian and in need of no alignment, as floats: exact.
void decode(StoredType type, const void* stored, int64_t count, float* out);
/// The inverse, rounded to the nearest, ties to even. Returns the index of the first finite number that the
/// type can't hold (fp16 ends at 65504), -1 without one.
int64_t encode(StoredType type, const float* values, int64_t count, void* stored);

}  // namespace triax
