// In bf16 a kernel computes what it computes in fp32 from the same values, rounded once where it is stored.

#include <gtest/gtest.h>

#include <cmath>

#include "core/bf16.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

using Halves = std::vector<bf16>;

Halves round_all(const Floats& x) {
  Halves out;
  for (float v : x) out.push_back(round_bf16(v));
  return out;
}
Floats widen_all(const Halves& x) {
  Floats out;
  for (bf16 v : x) out.push_back(value_of(v));
  return out;
}

/// The same values in both types.
struct Both {
  Halves half;
  Floats full;
  Both(Random& random, int64_t n, double stddev = 1, double mean = 0)
      : half(round_all(random.normals(n, stddev, mean))), full(widen_all(half)) {}
  explicit Both(int64_t n) : half(static_cast<size_t>(n), bf16{0x7fc0}), full(untouched(n)) {}  // NaN
};

/// Half a unit in the last place of bf16, and what fp32 may differ by when it sums in another order.
::testing::AssertionResult is_rounded(const Both& x) {
  double squares = 0;
  for (float v : x.full) squares += static_cast<double>(v) * v;
  const double scale = std::sqrt(squares / static_cast<double>(x.full.size()));
  for (size_t i = 0; i < x.full.size(); ++i) {
    const double error = std::fabs(static_cast<double>(value_of(x.half[i])) - x.full[i]);
    if (!(error <= std::ldexp(std::fabs(x.full[i]), -8) * 1.001 + 1e-6 * scale))
      return ::testing::AssertionFailure()
             << "element " << i << " is " << value_of(x.half[i]) << " instead of " << x.full[i];
  }
  return ::testing::AssertionSuccess();
}

class Bf16Kernels : public ::testing::Test {
 protected:
  Random random_{11};
  std::unique_ptr<Device> device_ = make_cpu_device(2);
  const Kernels& k_ = cpu_kernels();
};

TEST(Bf16, RoundsToNearestEven) {
  Random random(3);
  for (int i = 0; i < 100000; ++i) {
    const float x =
        static_cast<float>(random.normal() * std::ldexp(1.0, static_cast<int>(random.below(60)) - 30));
    const bf16 low{static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16)};
    const bf16 high{static_cast<uint16_t>(low.bits + 1)};
    const double below = std::fabs(static_cast<double>(x) - value_of(low)),
                 above = std::fabs(static_cast<double>(value_of(high)) - x);
    const bf16 want = below != above ? (below < above ? low : high) : low.bits % 2 ? high : low;
    ASSERT_EQ(round_bf16(x).bits, want.bits) << x;
  }
  EXPECT_EQ(round_bf16(__builtin_bit_cast(float, 0x3f808000u)).bits, 0x3f80);  // ties to even
  EXPECT_EQ(round_bf16(__builtin_bit_cast(float, 0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(round_bf16(3.4e38f).bits, 0x7f80);  // beyond the largest: infinity
  EXPECT_TRUE(std::isnan(value_of(round_bf16(__builtin_bit_cast(float, 0x7f800001u)))));
}

TEST_F(Bf16Kernels, ElementsOfAnotherTypeAreRefused) {
  Both x(random_, 8), y(8);
  EXPECT_THROW(k_.residual_add(*device_, {1, 8, nullptr, x.full.data(), nullptr, y.half.data()}), Error);
  const Gemm mixed{.m = 1,
                   .n = 1,
                   .k = 1,
                   .a = x.half.data(),
                   .lda = 1,
                   .b = x.full.data(),
                   .ldb = 1,
                   .c = y.full.data(),
                   .ldc = 1};
  EXPECT_THROW(k_.gemm(*device_, mixed), Error);
  const Gemm accumulates{.m = 1,
                         .n = 1,
                         .k = 1,
                         .a = x.half.data(),
                         .lda = 1,
                         .b = x.half.data(),
                         .ldb = 1,
                         .c = y.half.data(),
                         .ldc = 1,
                         .beta = 1};
  EXPECT_THROW(k_.gemm(*device_, accumulates), Error);
}

TEST_F(Bf16Kernels, ResidualAndNorms) {
  for (const bool layer_norm : {true, false})
    for (const int64_t h : {1, 17, 96}) {
      const int64_t t = 5, n = t * h;
      Both x(random_, n), delta(random_, n), bias(random_, h), weight(random_, h), shift(random_, h), sum(n),
          y(n);
      k_.residual_add(*device_, {t, h, x.half.data(), delta.half.data(), bias.half.data(), sum.half.data()});
      k_.residual_add(*device_, {t, h, x.full.data(), delta.full.data(), bias.full.data(), sum.full.data()});
      EXPECT_TRUE(is_rounded(sum));
      Halves residual(static_cast<size_t>(n));
      Floats mean(t), rstd(t), mean_half(t), rstd_half(t);
      NormForward op{.t = t,
                     .h = h,
                     .x = x.half.data(),
                     .delta = delta.half.data(),
                     .delta_bias = bias.half.data(),
                     .residual = residual.data(),
                     .weight = weight.half.data(),
                     .bias = layer_norm ? shift.half.data() : nullptr,
                     .epsilon = 1e-5f,
                     .y = y.half.data(),
                     .mean = layer_norm ? mean_half.data() : nullptr,
                     .rstd = rstd_half.data()};
      k_.norm_forward(*device_, op);
      EXPECT_EQ(widen_all(residual), widen_all(sum.half)) << "the residual has the bits of residual_add";
      sum.full = widen_all(sum.half);  // what the norm sees is rounded
      k_.norm_forward(*device_, {.t = t,
                                 .h = h,
                                 .x = sum.full.data(),
                                 .weight = weight.full.data(),
                                 .bias = layer_norm ? shift.full.data() : nullptr,
                                 .epsilon = 1e-5f,
                                 .y = y.full.data(),
                                 .mean = layer_norm ? mean.data() : nullptr,
                                 .rstd = rstd.data()});
      EXPECT_TRUE(is_rounded(y)) << h;
      Both dy(random_, n), dr(random_, n), dx(n);
      const float *m = layer_norm ? mean.data() : nullptr, *r = rstd.data();
      k_.norm_backward_input(*device_, {t, h, dy.half.data(), sum.half.data(), weight.half.data(), m, r,
                                        dr.half.data(), dx.half.data()});
      k_.norm_backward_input(*device_, {t, h, dy.full.data(), sum.full.data(), weight.full.data(), m, r,
                                        dr.full.data(), dx.full.data()});
      EXPECT_TRUE(is_rounded(dx)) << h;
      Floats dw(h, 1), db(h, 2), dw_half(h, 1), db_half(h, 2);
      k_.norm_backward_weight(*device_, {t, h, dy.half.data(), sum.half.data(), m, r, dw_half.data(),
                                         layer_norm ? db_half.data() : nullptr});
      k_.norm_backward_weight(*device_, {t, h, dy.full.data(), sum.full.data(), m, r, dw.data(),
                                         layer_norm ? db.data() : nullptr});
      EXPECT_TRUE(close_to(dw_half, widen(dw), 1e-5));
      EXPECT_TRUE(close_to(db_half, widen(db), 1e-5));
    }
}

TEST_F(Bf16Kernels, Attention) {
  struct Size {
    int64_t b, s, heads, kv, d;
  };
  for (const Size& z : {Size{2, 12, 4, 4, 3},
                        {1, 130, 4, 2, 16},
                        {1, 70, 2, 1, 40},
                        {1, 200, 2, 2, 24},
                        {1, 300, 2, 2, 16}}) {
    const int64_t t = z.b * z.s, width = (z.heads + 2 * z.kv) * z.d, out_width = z.heads * z.d;
    Both qkv(random_, t * width), out(t * out_width), dout(random_, t * out_width), dqkv(t * width);
    Floats lse(z.b * z.heads * z.s), lse_half = lse;
    k_.attention_forward(*device_,
                         {z.b, z.s, z.heads, z.kv, z.d, qkv.half.data(), out.half.data(), lse_half.data()});
    k_.attention_forward(*device_,
                         {z.b, z.s, z.heads, z.kv, z.d, qkv.full.data(), out.full.data(), lse.data()});
    EXPECT_TRUE(is_rounded(out));
    EXPECT_TRUE(close_to(lse_half, widen(lse), 1e-6));
    out.full = widen_all(out.half);
    k_.attention_backward(*device_, {z.b, z.s, z.heads, z.kv, z.d, qkv.half.data(), out.half.data(),
                                     lse.data(), dout.half.data(), dqkv.half.data()});
    k_.attention_backward(*device_, {z.b, z.s, z.heads, z.kv, z.d, qkv.full.data(), out.full.data(),
                                     lse.data(), dout.full.data(), dqkv.full.data()});
    EXPECT_TRUE(is_rounded(dqkv));
    Halves again(dqkv.half.size());
    const auto three = make_cpu_device(3);
    k_.attention_backward(*three, {z.b, z.s, z.heads, z.kv, z.d, qkv.half.data(), out.half.data(), lse.data(),
                                   dout.half.data(), again.data()});
    EXPECT_TRUE(same_bits(widen_all(again), widen_all(dqkv.half))) << "threads change bits";
    Both turned(random_, t * width);
    for (const bool inverse : {false, true}) {
      if (z.d % 2) continue;
      k_.rope(*device_, {z.b, z.s, z.heads + z.kv, z.d, width, turned.half.data(), 1e4f, inverse});
      k_.rope(*device_, {z.b, z.s, z.heads + z.kv, z.d, width, turned.full.data(), 1e4f, inverse});
      EXPECT_TRUE(is_rounded(turned));
      turned.full = widen_all(turned.half);
    }
  }
}

TEST_F(Bf16Kernels, Embedding) {
  const int64_t s = 5, t = 2 * s, h = 19, rows = 7;
  const std::vector<int32_t> ids{3, 4, 9, 10, 3, 3, 0, 8, 5, 9};
  Both table(random_, rows * h), y(t * h), positions(random_, s * h), dy(random_, t * h);
  k_.embedding_forward(*device_, {t, h, rows, 3, ids.data(), table.half.data(), y.half.data()});
  k_.embedding_forward(*device_, {t, h, rows, 3, ids.data(), table.full.data(), y.full.data()});
  EXPECT_EQ(widen_all(y.half), y.full);
  k_.position_forward(*device_, {t, s, h, 3, positions.half.data(), y.half.data()});
  k_.position_forward(*device_, {t, s, h, 3, positions.full.data(), y.full.data()});
  EXPECT_TRUE(is_rounded(y));
  Floats dt(rows * h, 1), dt_half = dt, dp(s * h, 2), dp_half = dp;
  k_.embedding_backward(*device_, {t, h, rows, 3, ids.data(), dy.half.data(), dt_half.data()});
  k_.embedding_backward(*device_, {t, h, rows, 3, ids.data(), dy.full.data(), dt.data()});
  k_.position_backward(*device_, {t, s, h, 3, dy.half.data(), dp_half.data()});
  k_.position_backward(*device_, {t, s, h, 3, dy.full.data(), dp.data()});
  EXPECT_TRUE(same_bits(dt_half, dt));
  EXPECT_TRUE(same_bits(dp_half, dp));
}

TEST_F(Bf16Kernels, Activations) {
  for (const int64_t f : {1, 33, 128}) {
    const int64_t t = 9;
    Both u(random_, t * f, 2), bias(random_, f), y(t * f), dy(random_, t * f), du(t * f), again(t * f);
    k_.bias_gelu_forward(*device_, {t, f, u.half.data(), bias.half.data(), y.half.data()});
    k_.bias_gelu_forward(*device_, {t, f, u.full.data(), bias.full.data(), y.full.data()});
    EXPECT_TRUE(is_rounded(y));
    k_.bias_gelu_backward(
        *device_, {t, f, u.half.data(), bias.half.data(), dy.half.data(), du.half.data(), again.half.data()});
    k_.bias_gelu_backward(
        *device_, {t, f, u.full.data(), bias.full.data(), dy.full.data(), du.full.data(), again.full.data()});
    EXPECT_TRUE(is_rounded(du));
    EXPECT_TRUE(is_rounded(again));
    Both gu(random_, 2 * t * f, 2), dgu(2 * t * f);
    k_.swiglu_forward(*device_, {t, f, gu.half.data(), y.half.data()});
    k_.swiglu_forward(*device_, {t, f, gu.full.data(), y.full.data()});
    EXPECT_TRUE(is_rounded(y));
    k_.swiglu_backward(*device_, {t, f, gu.half.data(), dy.half.data(), dgu.half.data(), again.half.data()});
    k_.swiglu_backward(*device_, {t, f, gu.full.data(), dy.full.data(), dgu.full.data(), again.full.data()});
    EXPECT_TRUE(is_rounded(dgu));
    EXPECT_TRUE(is_rounded(again));
    Floats db(f, 1), db_half = db;
    k_.bias_backward(*device_, {t, f, dy.half.data(), db_half.data()});
    k_.bias_backward(*device_, {t, f, dy.full.data(), db.data()});
    EXPECT_TRUE(close_to(db_half, widen(db), 1e-6));
  }
}

TEST_F(Bf16Kernels, Dropout) {
  const int64_t t = 9, h = 33;
  Both x(random_, t * h), bias(random_, h), y(t * h);
  const RandomStream bits(7, "dropout");
  const uint64_t domain = bits.domain();
  for (const bool with_bias : {true, false}) {
    k_.dropout(*device_, {t, h, x.half.data(), with_bias ? bias.half.data() : nullptr, y.half.data(),
                          bits.key(), &domain, 5, 1u << 30, 4.0f / 3});
    k_.dropout(*device_, {t, h, x.full.data(), with_bias ? bias.full.data() : nullptr, y.full.data(),
                          bits.key(), &domain, 5, 1u << 30, 4.0f / 3});
    EXPECT_TRUE(is_rounded(y));
  }
}

TEST_F(Bf16Kernels, CrossEntropy) {
  const int64_t t = 4, valid = 61, ld = 64;
  const std::vector<int32_t> targets{5, 65, -1, 100};
  Both logits(random_, t * ld, 3), d(t * ld);
  Floats maximum(t), sum(t), target(t), maximum_half(t), sum_half(t), target_half(t);
  k_.cross_entropy_max(*device_, {t, valid, ld, logits.half.data(), maximum_half.data()});
  k_.cross_entropy_max(*device_, {t, valid, ld, logits.full.data(), maximum.data()});
  EXPECT_TRUE(same_bits(maximum_half, maximum));
  k_.cross_entropy_sum(*device_, {t, valid, ld, 5, logits.half.data(), maximum.data(), targets.data(),
                                  sum_half.data(), target_half.data()});
  k_.cross_entropy_sum(*device_, {t, valid, ld, 5, logits.full.data(), maximum.data(), targets.data(),
                                  sum.data(), target.data()});
  EXPECT_TRUE(close_to(sum_half, widen(sum), 1e-6));
  EXPECT_TRUE(same_bits(target_half, target));
  // In place, as the head does it: the target's column is computed before its logit is overwritten.
  d.half = logits.half;
  k_.cross_entropy_backward(*device_, {t, valid, ld, 5, d.half.data(), maximum.data(), sum.data(),
                                       targets.data(), 0.25f, d.half.data()});
  k_.cross_entropy_backward(*device_, {t, valid, ld, 5, logits.full.data(), maximum.data(), sum.data(),
                                       targets.data(), 0.25f, d.full.data()});
  EXPECT_TRUE(is_rounded(d));
}

TEST_F(Bf16Kernels, Cast) {
  const Floats x = random_.normals(70001);
  Halves y(x.size());
  k_.cast(*device_, {static_cast<int64_t>(x.size()), x.data(), y.data()});
  EXPECT_EQ(widen_all(y), widen_all(round_all(x)));
}

struct NamedCode {
  const char* name;
  const cpu::GemmCode* code;
};

/// The ways to multiply bf16 that this processor has.
std::vector<NamedCode> codes() {
  std::vector<NamedCode> out{{"generic", &cpu::gemm_generic}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    out.push_back({"avx2", &cpu::gemm_avx2});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    out.push_back({"avx512", &cpu::gemm_avx512});
#endif
  if (cpu::has_avx512_bf16()) out.push_back({"avx512_bf16", &cpu::gemm_avx512_bf16});
  return out;
}

struct Product {
  Gemm op;
  Both a, b, c, bias;
  Product(Random& random, bool ta, bool tb, int64_t m, int64_t n, int64_t k, int64_t gap)
      : a(random, (ta ? k : m) * ((ta ? m : k) + gap)),
        b(random, (tb ? n : k) * ((tb ? k : n) + gap)),
        c(m * n),
        bias(random, n) {
    op = {.transpose_a = ta,
          .transpose_b = tb,
          .m = m,
          .n = n,
          .k = k,
          .a = a.half.data(),
          .lda = (ta ? m : k) + gap,
          .b = b.half.data(),
          .ldb = (tb ? k : n) + gap,
          .c = c.full.data(),
          .ldc = n,
          .bias = bias.full.data()};
    // Between the rows lies what no sum may take, not even times zero.
    for (auto& [rows, columns, operand] :
         {std::tuple{ta ? k : m, ta ? m : k, &a}, {tb ? n : k, tb ? k : n, &b}})
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = columns; j < columns + gap; ++j)
          operand->half[static_cast<size_t>(i * (columns + gap) + j)] = bf16{0x7fc0};
  }
  double truth(int64_t i, int64_t j, double* size) const {
    double sum = bias.full[static_cast<size_t>(j)];
    *size = std::fabs(sum);
    for (int64_t p = 0; p < op.k; ++p) {
      const double x =
          static_cast<double>(a.full[static_cast<size_t>(op.transpose_a ? p * op.lda + i : i * op.lda + p)]) *
          b.full[static_cast<size_t>(op.transpose_b ? j * op.ldb + p : p * op.ldb + j)];
      sum += x;
      *size += std::fabs(x);
    }
    return sum;
  }
};

TEST_F(Bf16Kernels, ProductsOfAllTargets) {
  struct Size {
    int64_t m, n, k, gap;
  };
  for (const NamedCode& target : codes())
    for (const Size& z :
         {Size{1, 1, 1, 0}, {5, 7, 3, 2}, {29, 65, 17, 1}, {100, 40, 96, 0}, {30, 33, 801, 1}})
      for (const int way : {0, 1, 2, 3}) {
        Product p(random_, way & 1, way & 2, z.m, z.n, z.k, z.gap);
        const std::string what = fmt::format("{}: {}{} {} x {} x {}", target.name, way & 1 ? 'T' : 'N',
                                             way & 2 ? 'T' : 'N', z.m, z.n, z.k);
        target.code->tile(p.op, {0, z.m, 0, z.n});
        for (int64_t i = 0; i < z.m; ++i)
          for (int64_t j = 0; j < z.n; ++j) {
            double size;
            const double want = p.truth(i, j, &size);
            ASSERT_NEAR(p.c.full[static_cast<size_t>(i * z.n + j)], want,
                        std::ldexp(size, -24) * std::sqrt(static_cast<double>(z.k) + 4))
                << what;
          }
        // Rounded, it is the same sum; and no cut of C changes a bit.
        const Floats whole = p.c.full;
        Gemm rounding = p.op;
        rounding.c = p.c.half.data();
        rounding.bias = p.bias.half.data();
        target.code->tile(rounding, {0, z.m, 0, z.n});
        EXPECT_EQ(widen_all(p.c.half), widen_all(round_all(whole))) << what;
        std::fill(p.c.full.begin(), p.c.full.end(), 0.0f);
        for (int64_t i = 0; i < z.m; i += 13)
          for (int64_t j = 0; j < z.n; j += 37)
            target.code->tile(p.op, {i, std::min<int64_t>(13, z.m - i), j, std::min<int64_t>(37, z.n - j)});
        EXPECT_TRUE(same_bits(p.c.full, whole)) << what << ", cut";
        Gemm adding = p.op;
        adding.beta = 1, adding.bias = nullptr;
        target.code->tile(adding, {0, z.m, 0, z.n});
        Doubles twice;
        for (int64_t i = 0; i < z.m * z.n; ++i)
          twice.push_back(2.0 * whole[static_cast<size_t>(i)] - p.bias.full[static_cast<size_t>(i % z.n)]);
        EXPECT_TRUE(close_to(p.c.full, twice, 1e-5)) << what << ", accumulated";
      }
}

// A C that is rounded needs all of K in one tile.
TEST_F(Bf16Kernels, ThreadsHaveTheBitsOfTiles) {
  const auto pair = make_cpu_device(2);
  for (const NamedCode& target : codes())
    for (const int way : {0, 1, 2, 3})
      for (const auto& [m, n, k] : {std::tuple{90, 200, 801}, {60, 60, 2048}, {60, 300, 4001}}) {
        Product p(random_, way & 1, way & 2, m, n, k, k % 2);
        for (const bool rounded : {false, true}) {
          Gemm op = p.op;
          if (rounded) op.c = p.c.half.data(), op.bias = p.bias.half.data();
          for (int64_t j = 0; j < n; j += 320)
            target.code->tile(op, {0, m, j, std::min<int64_t>(320, n - j)});
          const Both alone = p.c;
          std::fill(p.c.full.begin(), p.c.full.end(), 0.0f);
          std::fill(p.c.half.begin(), p.c.half.end(), bf16{});
          cpu::gemm_by(*pair, op, *target.code);
          const std::string what = fmt::format("{} {} {} x {} x {}", target.name, way, m, n, k);
          if (rounded)
            ASSERT_EQ(widen_all(p.c.half), widen_all(alone.half)) << what;
          else
            ASSERT_TRUE(same_bits(p.c.full, alone.full)) << what;
        }
      }
}

// The first of both C has whole cache lines and goes past the caches, as in gemm_test.cpp.
TEST_F(Bf16Kernels, ALargeGradientHasTheSameBitsPastTheCaches) {
  constexpr int64_t m = 512, n = 528, k = 601, line = 16;
  const auto pair = make_cpu_device(2);
  for (const NamedCode& target : codes())
    for (const bool tb : {false, true}) {
      Product p(random_, true, tb, m, n, k, 1);
      p.op.bias = {};
      std::vector<float> memory[2];
      for (const int64_t shift : {0, 1}) {
        auto& values = memory[shift];
        values.resize(static_cast<size_t>(m * n + 2 * line));
        const auto at = reinterpret_cast<uintptr_t>(values.data()) / sizeof(float) % line;
        const auto first = static_cast<int64_t>((line - at) % line) + shift;
        p.op.c = values.data() + first;
        cpu::gemm_by(*pair, p.op, *target.code);
        values.erase(values.begin(), values.begin() + first);
        values.resize(static_cast<size_t>(m * n));
      }
      ASSERT_TRUE(same_bits(memory[0], memory[1])) << target.name << (tb ? " TT" : " TN");
    }
}

TEST_F(Bf16Kernels, LargeProductsThroughTheTable) {
  for (const auto& [m, n, k] : {std::tuple{1500, 70, 800}, {700, 500, 64}}) {
    Product p(random_, false, true, m, n, k, 0);
    p.op.c = p.c.half.data();
    p.op.bias = p.bias.half.data();
    k_.gemm(*device_, p.op);
    p.op.c = p.c.full.data();
    p.op.bias = p.bias.full.data();
    k_.gemm(*device_, p.op);
    EXPECT_EQ(widen_all(p.c.half), widen_all(round_all(p.c.full)));
    double size;
    const double want = p.truth(m - 1, n - 1, &size);
    EXPECT_NEAR(p.c.full.back(), want, std::ldexp(size, -20));
  }
}

}  // namespace
}  // namespace triax::test
