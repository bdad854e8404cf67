#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/cpu/vector_math.h"
#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

// Over all scales of the argument, dense around 0 and at both ends.
TEST(VectorMath, ExponentialIsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0xff800000u; bits += 1999) {
    const float x = std::bit_cast<float>(bits);
    if (std::isnan(x)) continue;
    const double truth = std::exp(static_cast<double>(x));
    const float got = cpu::exp_of(x);
    if (truth > std::numeric_limits<float>::max()) {
      ASSERT_TRUE(std::isinf(got)) << x;
    } else if (truth < std::numeric_limits<float>::min()) {
      ASSERT_LE(got, std::numeric_limits<float>::min()) << x;
    } else {
      const double unit = std::ldexp(1.0, std::ilogb(truth) - 23);
      worst = std::max(worst, std::fabs(got - truth) / unit);
    }
  }
  EXPECT_LE(worst, 2);
  EXPECT_EQ(cpu::exp_of(0.0f), 1.0f);
  EXPECT_EQ(cpu::exp_of(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(cpu::exp_of(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(cpu::exp_of(std::numeric_limits<float>::quiet_NaN())));
}

double gelu(double z) {
  return 0.5 * z * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
}
double gelu_slope(double z) {
  const double a = std::sqrt(2 / M_PI), t = std::tanh(a * (z + 0.044715 * z * z * z));
  return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * a * (1 + 3 * 0.044715 * z * z);
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Shape {
  int64_t t, f;
};
class Activation : public ::testing::TestWithParam<Shape> {};

struct GeluRun {
  Floats y, du, again;  ///< again: y as the backward gives it
};
GeluRun run_gelu(int64_t t, int64_t f, const float* u, const Floats& bias, const float* dy, int threads) {
  auto device = make_cpu_device(threads);
  GeluRun out{untouched(t * f), untouched(t * f), untouched(t * f)};
  cpu_kernels().bias_gelu_forward(*device, {t, f, u, bias.data(), out.y.data()});
  cpu_kernels().bias_gelu_backward(*device, {t, f, u, bias.data(), dy, out.du.data(), out.again.data()});
  return out;
}

TEST_P(Activation, BiasGelu) {
  const auto [t, f] = GetParam();
  Random random(static_cast<uint64_t>(t * 7 + f));
  const Floats u = random.normals(t * f, 2), bias = random.normals(f), dy = random.normals(t * f);
  Doubles z(u.size()), y(u.size()), du(u.size());
  for (size_t i = 0; i < u.size(); ++i) {
    z[i] = static_cast<double>(u[i]) + bias[i % f];
    y[i] = gelu(z[i]);
    du[i] = dy[i] * gelu_slope(z[i]);
  }
  const GeluRun got = run_gelu(t, f, u.data(), bias, dy.data(), 1);
  EXPECT_TRUE(close_to(got.y, y, 1e-6));
  EXPECT_TRUE(close_to(got.du, du, 2e-6));
  EXPECT_TRUE(same_bits(got.again, got.y));
  const auto loss = [&](const Doubles& at) {
    double sum = 0;
    for (size_t i = 0; i < at.size(); ++i) sum += dy[i] * gelu(at[i]);
    return sum;
  };
  if (t * f < 5000) {
    EXPECT_TRUE(is_gradient_of(loss, z, du, 40, 1e-5));
  }

  for (int threads : {2, 3}) {
    const GeluRun many = run_gelu(t, f, u.data(), bias, dy.data(), threads);
    EXPECT_TRUE(same_bits(got.y, many.y));
    EXPECT_TRUE(same_bits(got.du, many.du));
  }
  const int64_t row = t - 1;
  const GeluRun one = run_gelu(1, f, &u[row * f], bias, &dy[row * f], 1);
  EXPECT_TRUE(same_bits(Floats(got.y.begin() + row * f, got.y.end()), one.y));
  EXPECT_TRUE(same_bits(Floats(got.du.begin() + row * f, got.du.end()), one.du));
  auto device = make_cpu_device(1);
  Floats dy_du = dy, u_y = u;
  cpu_kernels().bias_gelu_backward(*device,
                                   {t, f, u_y.data(), bias.data(), dy_du.data(), dy_du.data(), u_y.data()});
  EXPECT_TRUE(same_bits(got.du, dy_du));
  EXPECT_TRUE(same_bits(got.y, u_y));
  Floats u_du = u, dy_y = dy;
  cpu_kernels().bias_gelu_backward(*device,
                                   {t, f, u_du.data(), bias.data(), dy_y.data(), u_du.data(), dy_y.data()});
  EXPECT_TRUE(same_bits(got.du, u_du));
  EXPECT_TRUE(same_bits(got.y, dy_y));
}

TEST(ActivationRange, GeluHasNoTrapsFarFromZero) {
  const Floats u = {-1e4f, -100, -12, -8, -5, 0, 5, 8, 12, 100, 1e4f}, bias(u.size(), 0.0f),
               dy(u.size(), 1.0f);
  const GeluRun got = run_gelu(1, static_cast<int64_t>(u.size()), u.data(), bias, dy.data(), 1);
  for (size_t i = 0; i < u.size(); ++i) {
    EXPECT_NEAR(got.y[i], gelu(u[i]), 1e-6 * std::fabs(gelu(u[i])) + 1e-9) << u[i];
    EXPECT_NEAR(got.du[i], gelu_slope(u[i]), 1e-6) << u[i];
  }
  EXPECT_TRUE(same_bits(got.again, got.y));
}

struct SwigluRun {
  Floats y, dgu, again;
};
SwigluRun run_swiglu(int64_t t, int64_t f, const float* gu, const float* dy, int threads) {
  auto device = make_cpu_device(threads);
  SwigluRun out{untouched(t * f), untouched(2 * t * f), untouched(t * f)};
  cpu_kernels().swiglu_forward(*device, {t, f, gu, out.y.data()});
  cpu_kernels().swiglu_backward(*device, {t, f, gu, dy, out.dgu.data(), out.again.data()});
  return out;
}

TEST_P(Activation, Swiglu) {
  const auto [t, f] = GetParam();
  Random random(static_cast<uint64_t>(t * 7 + f + 1));
  const Floats gu = random.normals(2 * t * f, 2), dy = random.normals(t * f);
  const auto reference = [t = t, f = f](const Doubles& x) {
    Doubles y(static_cast<size_t>(t * f));
    for (int64_t r = 0; r < t; ++r)
      for (int64_t i = 0; i < f; ++i) {
        const double g = x[r * 2 * f + i];
        y[r * f + i] = g * sigmoid(g) * x[r * 2 * f + f + i];
      }
    return y;
  };
  Doubles dgu(gu.size());
  for (int64_t r = 0; r < t; ++r)
    for (int64_t i = 0; i < f; ++i) {
      const double g = gu[r * 2 * f + i], up = gu[r * 2 * f + f + i], s = sigmoid(g), d = dy[r * f + i];
      dgu[r * 2 * f + i] = d * up * (s + g * s * (1 - s));
      dgu[r * 2 * f + f + i] = d * g * s;
    }
  const SwigluRun got = run_swiglu(t, f, gu.data(), dy.data(), 1);
  EXPECT_TRUE(close_to(got.y, reference(widen(gu)), 1e-6));
  EXPECT_TRUE(close_to(got.dgu, dgu, 2e-6));
  EXPECT_TRUE(same_bits(got.again, got.y));
  if (t * f < 5000) {
    EXPECT_TRUE(is_gradient_of([&](const Doubles& x) { return weighted(reference(x), dy); }, widen(gu), dgu,
                               40, 1e-5));
  }

  for (int threads : {2, 3}) {
    const SwigluRun many = run_swiglu(t, f, gu.data(), dy.data(), threads);
    EXPECT_TRUE(same_bits(got.y, many.y));
    EXPECT_TRUE(same_bits(got.dgu, many.dgu));
  }
  const int64_t row = t - 1;
  const SwigluRun one = run_swiglu(1, f, &gu[row * 2 * f], &dy[row * f], 1);
  EXPECT_TRUE(same_bits(Floats(got.y.begin() + row * f, got.y.end()), one.y));
  EXPECT_TRUE(same_bits(Floats(got.dgu.begin() + row * 2 * f, got.dgu.end()), one.dgu));
  auto device = make_cpu_device(1);
  Floats gu_dgu = gu, dy_y = dy;
  cpu_kernels().swiglu_backward(*device, {t, f, gu_dgu.data(), dy_y.data(), gu_dgu.data(), dy_y.data()});
  EXPECT_TRUE(same_bits(got.dgu, gu_dgu));
  EXPECT_TRUE(same_bits(got.y, dy_y));
}

TEST(ActivationRange, SwigluHasNoTrapsFarFromZero) {
  for (float g : {-1e4f, -100.0f, -89.0f, -88.0f, 88.0f, 1e4f}) {
    const Floats gu = {g, 3.0f}, dy = {1.0f};
    const SwigluRun got = run_swiglu(1, 1, gu.data(), dy.data(), 1);
    const double s = sigmoid(g);
    EXPECT_NEAR(got.y[0], 3 * g * s, 1e-6 * std::fabs(3 * g * s) + 1e-30) << g;
    EXPECT_NEAR(got.dgu[0], 3 * (s + g * s * (1 - s)), 1e-5) << g;
    EXPECT_NEAR(got.dgu[1], g * s, 1e-6 * std::fabs(g * s) + 1e-30) << g;
    EXPECT_TRUE(same_bits(got.again, got.y)) << g;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Activation,
                         ::testing::Values(Shape{1, 1}, Shape{3, 5}, Shape{17, 48}, Shape{5, 131},
                                           Shape{90, 512}));

}  // namespace
}  // namespace triax::test
