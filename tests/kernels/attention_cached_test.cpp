// Attention position by position on a key-value cache, against attention over the whole sequence.

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

struct Case {
  int64_t s, heads, kv_heads, d;
  int64_t row() const { return (heads + 2 * kv_heads) * d; }
  int64_t capacity() const { return (s + cache_block - 1) / cache_block * cache_block; }
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "s" << c.s << " heads" << c.heads << "/" << c.kv_heads << " d" << c.d;
}

template <class T>
std::vector<T> whole(const Case& c, const std::vector<T>& qkv, int threads = 1) {
  const auto device = make_cpu_device(threads);
  std::vector<T> out(static_cast<size_t>(c.s * c.heads * c.d));
  Floats lse(static_cast<size_t>(c.heads * c.s));
  cpu_kernels().attention_forward(*device,
                                  {1, c.s, c.heads, c.kv_heads, c.d, qkv.data(), out.data(), lse.data()});
  return out;
}

/// `steps` positions at a time. The cache starts as NaN: what is not there yet must not be read into a
/// result.
template <class T>
std::vector<T> by_steps(const Case& c, const std::vector<T>& qkv, int64_t steps, int threads, T nothing) {
  const auto device = make_cpu_device(threads);
  std::vector<T> out(static_cast<size_t>(c.s * c.heads * c.d));
  std::vector<T> keys(static_cast<size_t>(c.kv_heads * c.capacity() * c.d), nothing), values = keys;
  for (int64_t first = 0; first < c.s; first += steps)
    cpu_kernels().attention_cached(*device, {std::min(steps, c.s - first), first, c.capacity(), c.heads,
                                             c.kv_heads, c.d, qkv.data() + first * c.row(), keys.data(),
                                             values.data(), out.data() + first * c.heads * c.d});
  return out;
}

class CachedAttention : public ::testing::TestWithParam<Case> {};

TEST_P(CachedAttention, HasTheBitsOfTheWholeSequence) {
  const Case c = GetParam();
  Random random(static_cast<uint64_t>(c.s + c.d));
  const Floats qkv = random.normals(c.s * c.row(), 1.2);
  const Floats truth = whole(c, qkv);
  for (const int64_t steps : {int64_t{1}, int64_t{5}, int64_t{64}, c.s})
    for (const int threads : {1, 3})
      EXPECT_TRUE(same_bits(by_steps(c, qkv, steps, threads, std::nanf("")), truth))
          << steps << " positions at a time, " << threads << " threads";
}

TEST_P(CachedAttention, InBf16Too) {
  const Case c = GetParam();
  Random random(static_cast<uint64_t>(c.s * c.d));
  std::vector<bf16> qkv;
  for (const float x : random.normals(c.s * c.row(), 1.2)) qkv.push_back(round_bf16(x));
  const auto bits = [](const std::vector<bf16>& x) {
    std::vector<uint16_t> all;
    for (const bf16 v : x) all.push_back(__builtin_bit_cast(uint16_t, v));
    return all;
  };
  const std::vector<uint16_t> truth = bits(whole(c, qkv));
  for (const int64_t steps : {int64_t{1}, int64_t{7}, c.s})
    EXPECT_EQ(bits(by_steps(c, qkv, steps, 1, round_bf16(std::nanf("")))), truth) << steps;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CachedAttention,
                         ::testing::Values(Case{1, 1, 1, 1}, Case{7, 2, 2, 5}, Case{65, 4, 2, 8},
                                           Case{130, 6, 2, 16}, Case{129, 8, 1, 64}, Case{200, 3, 3, 33},
                                           Case{70, 10, 1, 256}));

// Every version that this processor can run keeps its own bits, not only the best one.
TEST(CachedAttentionVersions, HaveTheirOwnBits) {
  const Case c{150, 4, 2, 40};
  Random random(9);
  const Floats qkv = random.normals(c.s * c.row(), 1.2), best = whole(c, qkv);
  const int64_t rows = c.s * c.heads / c.kv_heads;
  for (const cpu::AttentionPieces* pieces : {&cpu::attention_generic(), &cpu::attention_avx2()}) {
#if defined(__x86_64__)
    if (pieces == &cpu::attention_avx2() && !__builtin_cpu_supports("avx2")) continue;
#endif
    Floats truth = untouched(c.s * c.heads * c.d), got = truth, lse(static_cast<size_t>(c.heads * c.s));
    const AttentionForward forward{1, c.s, c.heads, c.kv_heads, c.d, qkv.data(), truth.data(), lse.data()};
    for (int64_t head = 0; head < c.heads; ++head)
      for (int64_t block = 0; block * cache_block < c.s; ++block) pieces->forward(forward, 0, head, block, 1);
    Floats keys(static_cast<size_t>(c.kv_heads * c.capacity() * c.d)), values = keys;
    const AttentionCached op{c.s, 0,          c.capacity(), c.heads,       c.kv_heads,
                             c.d, qkv.data(), keys.data(),  values.data(), got.data()};
    const auto device = make_cpu_device(1);
    cpu_kernels().attention_cached(*device, op);  // fills the cache
    got = untouched(c.s * c.heads * c.d);
    AttentionCached own = op;
    own.out = got.data();
    for (int64_t kv = 0; kv < c.kv_heads; ++kv)
      for (int64_t tile = 0; tile * pieces->cached_rows < rows; ++tile) pieces->cached(own, kv, tile);
    EXPECT_TRUE(same_bits(got, truth));
    EXPECT_TRUE(close_to(got, widen(best), 5e-6));
  }
}

TEST(CachedAttentionLimits, RefusesPositionsBeyondTheCache) {
  const auto device = make_cpu_device(1);
  try {
    cpu_kernels().attention_cached(*device, {2, 63, 64, 1, 1, 4, nullptr, nullptr, nullptr, nullptr});
    FAIL() << "position 64 of a cache of 64 was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("63 to 65"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace triax::test
