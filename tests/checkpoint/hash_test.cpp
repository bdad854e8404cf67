#include "checkpoint/hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "checkpoint/crc32c.h"
#include "logical_state.h"

namespace triax::test {
namespace {

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// The definition of docs/checkpoint_format.md, element by element.
uint64_t hash_by_definition(const std::string& path, const std::vector<float>& values) {
  uint64_t key = 0xcbf29ce484222325ull;
  for (char c : path) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  key = mix(key);
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    sum += mix((key + i * 0x9E3779B97F4A7C15ull) ^ bits);
  }
  return sum;
}

TEST(LogicalHash, IsItsDefinition) {
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, -3.25f, 1e-40f, 7.0f};
  EXPECT_EQ(hash_run(logical_key("model/a"), 0, values.data(), 6), hash_by_definition("model/a", values));
  // Fixed for ever: files of older versions carry such numbers (computed once with Python's integers).
  EXPECT_EQ(hash_by_definition("model/a", {1.0f, 2.0f}), 0x42c3dd573cc482a8ull);
}

TEST(LogicalHash, DoesNotDependOnTheCut) {
  for (int ranks : {1, 2, 3, 4, 7, 8}) {
    for (uint64_t cut_seed = 0; cut_seed < 5; ++cut_seed) {
      std::map<std::string, uint64_t> sums;
      for (int rank = 0; rank < ranks; ++rank) {
        const Pieces pieces = cut(small_model(), ranks, rank, cut_seed);
        fill(pieces, 9);
        for (const StatePiece& p : pieces.list) sums[logical_path(p.kind, p.name)] += hash_piece(p);
      }
      for (const LogicalTensor& t : small_model()) {
        std::vector<float> values(static_cast<size_t>(t.shape.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = value_at(t, static_cast<int64_t>(i), 9);
        const std::string path = logical_path(t.kind, t.name);
        EXPECT_EQ(sums[path], hash_by_definition(path, values)) << path << " on " << ranks << " ranks";
      }
    }
  }
}

TEST(LogicalHash, CanBeTakenInParts) {
  const Shape global{5, 7, 6};
  const Box box{{1, 2, 0}, {3, 4, 6}};
  std::vector<float> values(static_cast<size_t>(box.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const uint64_t all = hash_range(5, global, box, 0, box.numel(), values.data());
  uint64_t expected = 0;
  for (int64_t i = 0; i < box.numel(); ++i) {
    const int64_t a = 1 + i / 24, b = 2 + i / 6 % 4, c = i % 6;
    expected += hash_run(5, static_cast<uint64_t>((a * 7 + b) * 6 + c), &values[static_cast<size_t>(i)], 1);
  }
  EXPECT_EQ(all, expected);
  for (int64_t step : {1, 5, 6, 24, 25, 71}) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < box.numel(); i += step)
      sum += hash_range(5, global, box, i, std::min(i + step, box.numel()), values.data() + i);
    EXPECT_EQ(sum, all) << step;
  }
}

TEST(LogicalHash, SeesEveryBitMoveAndName) {
  std::vector<float> values(64);
  for (size_t i = 0; i < 64; ++i) values[i] = static_cast<float>(i % 8);
  const uint64_t key = logical_key("model/a");
  const uint64_t plain = hash_run(key, 0, values.data(), 64);
  std::set<uint64_t> seen{plain};
  for (size_t bit = 0; bit < 64 * 32; ++bit) {
    auto* word = reinterpret_cast<unsigned char*>(values.data()) + bit / 8;
    *word ^= static_cast<unsigned char>(1u << bit % 8);
    EXPECT_TRUE(seen.insert(hash_run(key, 0, values.data(), 64)).second) << bit;
    *word ^= static_cast<unsigned char>(1u << bit % 8);
  }
  std::swap(values[3], values[4]);
  EXPECT_TRUE(seen.insert(hash_run(key, 0, values.data(), 64)).second);
  std::swap(values[3], values[4]);
  EXPECT_TRUE(seen.insert(hash_run(key, 1, values.data(), 64)).second);
  EXPECT_TRUE(seen.insert(hash_run(logical_key("optimizer/a/exp_avg"), 0, values.data(), 64)).second);
}

TEST(Crc32c, IsTheStandards) {
  EXPECT_EQ(crc32c(0, "123456789", 9), 0xE3069283u);
  EXPECT_EQ(crc32c_by_tables(0, "123456789", 9), 0xE3069283u);
  const std::vector<unsigned char> zeros(32, 0);
  EXPECT_EQ(crc32c(0, zeros.data(), 32), 0x8A9136AAu);  // RFC 3720, B.4
  std::vector<unsigned char> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * i + i / 3);
  const uint32_t all = crc32c_by_tables(0, bytes.data(), bytes.size());
  for (size_t n = 0; n <= 1000; n += 37)
    EXPECT_EQ(crc32c(crc32c(0, bytes.data(), n), bytes.data() + n, 1000 - n), all) << n;
}

}  // namespace
}  // namespace triax::test
