#include "core/rng.h"

#include <cmath>
#include <numbers>

namespace triax {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  philox(c[0], c[1], c[2], c[3], key[0], key[1]);
  return c;
}

uint64_t hash_name(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char ch : name) h = (h ^ ch) * 0x100000001b3;
  return h;
}

RandomStream::RandomStream(uint64_t seed, std::string_view name)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, domain_(hash_name(name)) {}

std::array<uint32_t, 4> RandomStream::block(uint64_t index) const {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(domain_), static_cast<uint32_t>(domain_ >> 32)},
                key_);
}

uint32_t RandomStream::bits(uint64_t index) const {
  return block(index / 4)[index % 4];
}

uint64_t RandomStream::bits64(uint64_t index) const {
  const auto b = block(index / 2);
  return index % 2 ? (uint64_t{b[3]} << 32 | b[2]) : (uint64_t{b[1]} << 32 | b[0]);
}

uint64_t RandomStream::below(uint64_t n, uint64_t index) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits64(index)) * n) >> 64);
}

void RandomStream::normal(uint64_t first, int64_t count, float mean, float stddev, float* out) const {
  constexpr double scale = 1.0 / 4294967296.0;
  std::array<double, 4> four{};
  uint64_t have = ~uint64_t{0};
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    if (index / 4 != have) {
      have = index / 4;
      const auto b = block(have);
      for (int pair = 0; pair < 2; ++pair) {
        const double u = (b[2 * pair] + 0.5) * scale;  // never 0, so that the logarithm is finite
        const double angle = 2.0 * std::numbers::pi * (b[2 * pair + 1] * scale);
        const double radius = std::sqrt(-2.0 * std::log(u));
        four[2 * pair] = radius * std::cos(angle);
        four[2 * pair + 1] = radius * std::sin(angle);
      }
    }
    out[i] = static_cast<float>(mean + stddev * four[index % 4]);
  }
}

}  // namespace triax
