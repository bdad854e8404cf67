#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/error.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

struct Case {
  int64_t b, s, heads, kv_heads, d;
  int64_t row() const { return (heads + 2 * kv_heads) * d; }
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << "b" << c.b << " s" << c.s << " heads" << c.heads << "/" << c.kv_heads << " d" << c.d;
}

// The reference in double, by the definition: each head's S x S weights.
struct Reference {
  Doubles out, lse, dqkv;
};

Reference reference(const Case& c, const Doubles& qkv, const Floats* dout) {
  const int64_t row = c.row(), orow = c.heads * c.d;
  Reference r{Doubles(c.b * c.s * orow), Doubles(c.b * c.heads * c.s), Doubles(qkv.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(c.d));
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t kv = head / (c.heads / c.kv_heads);
      for (int64_t i = 0; i < c.s; ++i) {
        const int64_t q = (b * c.s + i) * row + head * c.d, o = (b * c.s + i) * orow + head * c.d;
        const auto key = [&](int64_t j) { return (b * c.s + j) * row + (c.heads + kv) * c.d; };
        const auto value = [&](int64_t j) { return key(j) + c.kv_heads * c.d; };
        Doubles weight(static_cast<size_t>(i + 1));
        double maximum = -1e300, sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          for (int64_t k = 0; k < c.d; ++k) weight[j] += qkv[q + k] * qkv[key(j) + k] * scale;
          maximum = std::max(maximum, weight[j]);
        }
        for (double& w : weight) sum += w = std::exp(w - maximum);
        r.lse[(b * c.heads + head) * c.s + i] = maximum + std::log(sum);
        double delta = 0;
        for (int64_t j = 0; j <= i; ++j) {
          weight[j] /= sum;
          for (int64_t k = 0; k < c.d; ++k) r.out[o + k] += weight[j] * qkv[value(j) + k];
        }
        if (!dout) continue;
        for (int64_t k = 0; k < c.d; ++k) delta += r.out[o + k] * (*dout)[o + k];
        for (int64_t j = 0; j <= i; ++j) {
          double dweight = 0;
          for (int64_t k = 0; k < c.d; ++k) {
            dweight += (*dout)[o + k] * qkv[value(j) + k];
            r.dqkv[value(j) + k] += weight[j] * (*dout)[o + k];
          }
          const double dscore = weight[j] * (dweight - delta) * scale;
          for (int64_t k = 0; k < c.d; ++k) {
            r.dqkv[q + k] += dscore * qkv[key(j) + k];
            r.dqkv[key(j) + k] += dscore * qkv[q + k];
          }
        }
      }
    }
  return r;
}

struct Results {
  Floats out, lse, dqkv;
};

Results run(const Case& c, const float* qkv, const float* dout, int threads) {
  auto device = make_cpu_device(threads);
  Results r{untouched(c.b * c.s * c.heads * c.d), untouched(c.b * c.heads * c.s),
            untouched(c.b * c.s * c.row())};
  cpu_kernels().attention_forward(*device,
                                  {c.b, c.s, c.heads, c.kv_heads, c.d, qkv, r.out.data(), r.lse.data()});
  cpu_kernels().attention_backward(
      *device, {c.b, c.s, c.heads, c.kv_heads, c.d, qkv, r.out.data(), r.lse.data(), dout, r.dqkv.data()});
  return r;
}

struct Data {
  Floats qkv, dout;
  explicit Data(const Case& c, double spread = 1.2) {
    Random random(static_cast<uint64_t>(c.s * 100 + c.d));
    qkv = random.normals(c.b * c.s * c.row(), spread);
    dout = random.normals(c.b * c.s * c.heads * c.d);
  }
};

class Attention : public ::testing::TestWithParam<Case> {};

TEST_P(Attention, ComputesWhatDoublesCompute) {
  const Case c = GetParam();
  const Data d(c);
  const Results got = run(c, d.qkv.data(), d.dout.data(), 2);
  const Reference truth = reference(c, widen(d.qkv), &d.dout);
  EXPECT_TRUE(close_to(got.out, truth.out, 5e-6));
  EXPECT_TRUE(close_to(got.lse, truth.lse, 2e-6));
  EXPECT_TRUE(close_to(got.dqkv, truth.dqkv, 1e-5));
  if (c.b * c.s * c.s * c.heads * c.d > 40000) return;  // differences cost a forward per element
  const auto loss = [&](const Doubles& x) { return weighted(reference(c, x, nullptr).out, d.dout); };
  EXPECT_TRUE(is_gradient_of(loss, widen(d.qkv), truth.dqkv, 60, 1e-5));
}

// Three threads on few heads split the heads, one thread does not: both ways of the backward are compared.
TEST_P(Attention, BitsDoNotDependOnThreads) {
  const Case c = GetParam();
  const Data d(c);
  const Results one = run(c, d.qkv.data(), d.dout.data(), 1);
  for (int threads : {2, 3, 7}) {
    const Results many = run(c, d.qkv.data(), d.dout.data(), threads);
    EXPECT_TRUE(same_bits(one.out, many.out));
    EXPECT_TRUE(same_bits(one.lse, many.lse));
    EXPECT_TRUE(same_bits(one.dqkv, many.dqkv));
  }
}

TEST_P(Attention, SequencesDoNotDependOnEachOther) {
  const Case c = GetParam();
  const Data d(c);
  const Results all = run(c, d.qkv.data(), d.dout.data(), 1);
  Case last = c;
  last.b = 1;
  const auto tail = [&](const Floats& x) {
    return Floats(x.end() - static_cast<int64_t>(x.size()) / c.b, x.end());
  };
  const Floats qkv = tail(d.qkv), dout = tail(d.dout);
  const Results one = run(last, qkv.data(), dout.data(), 1);
  EXPECT_TRUE(same_bits(tail(all.out), one.out));
  EXPECT_TRUE(same_bits(tail(all.dqkv), one.dqkv));
}

// Causality, bit for bit: what comes later changes nothing.
TEST_P(Attention, APrefixComputesTheSameOutput) {
  const Case c = GetParam();
  if (c.b != 1) return;
  const Data d(c);
  const Results all = run(c, d.qkv.data(), d.dout.data(), 1);
  Case prefix = c;
  prefix.s = (c.s + 1) / 2;
  const Results half = run(prefix, d.qkv.data(), d.dout.data(), 1);
  EXPECT_TRUE(same_bits(Floats(all.out.begin(), all.out.begin() + prefix.s * c.heads * c.d), half.out));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Values(Case{1, 1, 1, 1, 1}, Case{2, 1, 2, 1, 5}, Case{1, 7, 2, 2, 5},
                                           Case{2, 7, 4, 2, 8}, Case{1, 13, 3, 1, 2}, Case{2, 64, 2, 2, 64},
                                           Case{1, 65, 6, 2, 16}, Case{2, 100, 2, 1, 33},
                                           Case{1, 130, 4, 1, 80}, Case{1, 200, 1, 1, 64},
                                           Case{1, 96, 2, 1, 256}, Case{1, 257, 3, 3, 24},
                                           Case{1, 600, 4, 2, 16}, Case{2, 330, 2, 2, 40}));

// Every version that this processor can run is right, not only the best one.
TEST(AttentionVersions, Generic) {
  const Case c{1, 150, 2, 1, 40};
  const Data d(c);
  const Reference truth = reference(c, widen(d.qkv), &d.dout);
  Results r{untouched(c.s * c.heads * c.d), untouched(c.heads * c.s), untouched(c.s * c.row())};
  const AttentionForward forward{c.b, c.s,          c.heads,      c.kv_heads,
                                 c.d, d.qkv.data(), r.out.data(), r.lse.data()};
  const AttentionBackward backward{c.b,          c.s,          c.heads,      c.kv_heads,    c.d,
                                   d.qkv.data(), r.out.data(), r.lse.data(), d.dout.data(), r.dqkv.data()};
  const cpu::AttentionPieces& pieces = cpu::attention_generic();
  for (int64_t head = 0; head < c.heads; ++head)
    for (int64_t block = 0; block < 3; ++block) pieces.forward(forward, 0, head, block, 1);
  pieces.backward(backward, 0, 0);
  EXPECT_TRUE(close_to(r.out, truth.out, 5e-6));
  EXPECT_TRUE(close_to(r.dqkv, truth.dqkv, 1e-5));
}

// How many blocks of queries go together is a matter of speed.
TEST(AttentionGroups, HaveTheSameBits) {
  const Case c{1, 330, 1, 1, 24};  // six blocks, the last one short
  const Data d(c);
  const cpu::AttentionPieces& pieces = cpu::attention_generic();
  Floats outs[cpu::attention_group];
  for (int64_t count = 1; count <= cpu::attention_group; ++count) {
    Floats &out = outs[count - 1], lse = untouched(c.s);
    out = untouched(c.s * c.d);
    const AttentionForward op{c.b, c.s, c.heads, c.kv_heads, c.d, d.qkv.data(), out.data(), lse.data()};
    for (int64_t first = 0; first < 6; first += count)
      pieces.forward(op, 0, 0, first, std::min<int64_t>(count, 6 - first));
    EXPECT_TRUE(same_bits(out, outs[0])) << count;
  }
}

TEST(AttentionLimits, LargeScoresDoNotOverflow) {
  const Case c{1, 70, 2, 2, 16};
  const Data d(c, 60);  // scores of several thousands
  const Results got = run(c, d.qkv.data(), d.dout.data(), 1);
  const Reference truth = reference(c, widen(d.qkv), &d.dout);
  EXPECT_TRUE(close_to(got.lse, truth.lse, 1e-6));
  EXPECT_TRUE(close_to(got.out, truth.out, 3e-3));  // scores of 1e4 carry errors of 1e-3
  for (float x : got.dqkv) ASSERT_TRUE(std::isfinite(x));
}

TEST(AttentionLimits, RefusesWhatItCannotDo) {
  auto device = make_cpu_device(1);
  try {
    cpu_kernels().attention_forward(*device, {1, 1, 1, 1, 257, nullptr, nullptr, nullptr});
    FAIL() << "a head size of 257 was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("1 to 256"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace triax::test
