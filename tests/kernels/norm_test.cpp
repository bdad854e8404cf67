#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {
namespace {

struct Case {
  int64_t t, h;
  bool layer;  // LayerNorm, else RMSNorm
};

// The reference in double: r = x + (delta + delta_bias), y = norm(r) * weight (+ bias).
struct Reference {
  Doubles r, y, mean, rstd;
};

Reference forward(const Case& c, const Doubles& r, const Doubles& weight, const Doubles& bias,
                  double epsilon) {
  Reference out{r, Doubles(r.size()), Doubles(c.t), Doubles(c.t)};
  for (int64_t t = 0; t < c.t; ++t) {
    const double* row = &r[t * c.h];
    double mean = 0, variance = 0;
    if (c.layer)
      for (int64_t i = 0; i < c.h; ++i) mean += row[i] / c.h;
    for (int64_t i = 0; i < c.h; ++i) variance += (row[i] - mean) * (row[i] - mean) / c.h;
    out.mean[t] = mean;
    out.rstd[t] = 1 / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < c.h; ++i)
      out.y[t * c.h + i] = (row[i] - mean) * out.rstd[t] * weight[i] + (c.layer ? bias[i] : 0);
  }
  return out;
}

struct Gradients {
  Doubles dx, dweight, dbias;
};

Gradients backward(const Case& c, const Reference& ref, const Doubles& weight, const Doubles& dy) {
  Gradients g{Doubles(dy.size()), Doubles(c.h), Doubles(c.h)};
  for (int64_t t = 0; t < c.t; ++t) {
    double sum = 0, dot = 0;
    const auto xhat = [&](int64_t i) { return (ref.r[t * c.h + i] - ref.mean[t]) * ref.rstd[t]; };
    for (int64_t i = 0; i < c.h; ++i) {
      const double d = dy[t * c.h + i];
      g.dweight[i] += d * xhat(i);
      g.dbias[i] += d;
      sum += d * weight[i] / c.h;
      dot += d * weight[i] * xhat(i) / c.h;
    }
    if (!c.layer) sum = 0;
    for (int64_t i = 0; i < c.h; ++i)
      g.dx[t * c.h + i] = ref.rstd[t] * (dy[t * c.h + i] * weight[i] - sum - xhat(i) * dot);
  }
  return g;
}

// One run of the kernels over all rows, on `threads` threads.
struct Results {
  Floats residual, y, mean, rstd, dx, dweight, dbias;
};

constexpr float epsilon = 1e-5f;

struct Data {
  Floats x, delta, delta_bias, weight, bias, dy, dr, dweight, dbias;
  explicit Data(const Case& c, double mean = 0.3) {
    Random random(static_cast<uint64_t>(c.t * 1000 + c.h));
    x = random.normals(c.t * c.h, 1, mean);
    delta = random.normals(c.t * c.h);
    delta_bias = random.normals(c.h);
    weight = random.normals(c.h, 0.5, 1);
    bias = random.normals(c.h);
    dy = random.normals(c.t * c.h);
    dr = random.normals(c.t * c.h);
    dweight = random.normals(c.h);
    dbias = random.normals(c.h);
  }
};

// Runs on rows [first, first + count) of the data, whose token arrays begin `shift` elements late.
Results run(const Case& c, const Data& d, int threads, int64_t first, int64_t count, int64_t shift = 0) {
  auto device = make_cpu_device(threads);
  const Kernels& k = cpu_kernels();
  const int64_t n = count * c.h, at = first * c.h + shift;
  Results out{untouched(n), untouched(n), untouched(count), untouched(count),
              untouched(n), d.dweight,    d.dbias};
  float *mean = c.layer ? out.mean.data() : nullptr, *dbias = c.layer ? out.dbias.data() : nullptr;
  k.norm_forward(
      *device, {count, c.h, &d.x[at], &d.delta[at], d.delta_bias.data(), out.residual.data(), d.weight.data(),
                c.layer ? d.bias.data() : nullptr, epsilon, out.y.data(), mean, out.rstd.data()});
  k.norm_backward_input(*device, {count, c.h, &d.dy[at], out.residual.data(), d.weight.data(), mean,
                                  out.rstd.data(), &d.dr[at], out.dx.data()});
  k.norm_backward_weight(*device, {count, c.h, &d.dy[at], out.residual.data(), mean, out.rstd.data(),
                                   out.dweight.data(), dbias});
  return out;
}

class Norm : public ::testing::TestWithParam<Case> {};

TEST_P(Norm, ComputesWhatDoublesCompute) {
  const Case c = GetParam();
  const Data d(c);
  const Results got = run(c, d, 2, 0, c.t);
  Doubles r = widen(d.x);
  for (int64_t i = 0; i < c.t * c.h; ++i) r[i] += static_cast<double>(d.delta[i]) + d.delta_bias[i % c.h];
  const Reference ref = forward(c, r, widen(d.weight), widen(d.bias), epsilon);
  EXPECT_TRUE(close_to(got.residual, ref.r, 1e-6));
  EXPECT_TRUE(close_to(got.y, ref.y, 3e-6));
  EXPECT_TRUE(close_to(got.rstd, ref.rstd, 1e-6));
  if (c.layer) {
    EXPECT_TRUE(close_to(got.mean, ref.mean, 2e-6));
  }

  const Gradients truth = backward(c, ref, widen(d.weight), widen(d.dy));
  EXPECT_TRUE(close_to(got.dx, plus(d.dr, truth.dx), 5e-6));
  EXPECT_TRUE(close_to(got.dweight, plus(d.dweight, truth.dweight), 3e-6));
  if (c.layer) {
    EXPECT_TRUE(close_to(got.dbias, plus(d.dbias, truth.dbias), 3e-6));
  }

  const auto loss = [&](const Doubles& x, const Doubles& w, const Doubles& b) {
    return weighted(forward(c, x, w, b, epsilon).y, d.dy);
  };
  if (c.t * c.h > 4000) return;  // differences cost a forward per element
  const Doubles w = widen(d.weight), b = widen(d.bias);
  EXPECT_TRUE(is_gradient_of([&](const Doubles& x) { return loss(x, w, b); }, ref.r, truth.dx));
  EXPECT_TRUE(is_gradient_of([&](const Doubles& x) { return loss(ref.r, x, b); }, w, truth.dweight));
  if (c.layer) {
    EXPECT_TRUE(is_gradient_of([&](const Doubles& x) { return loss(ref.r, w, x); }, b, truth.dbias));
  }
}

TEST_P(Norm, BitsDoNotDependOnThreads) {
  const Case c = GetParam();
  const Data d(c);
  const Results one = run(c, d, 1, 0, c.t);
  for (int threads : {2, 3}) {
    const Results many = run(c, d, threads, 0, c.t);
    EXPECT_TRUE(same_bits(one.residual, many.residual));
    EXPECT_TRUE(same_bits(one.y, many.y));
    EXPECT_TRUE(same_bits(one.dx, many.dx));
    EXPECT_TRUE(same_bits(one.dweight, many.dweight));
    if (c.layer) {
      EXPECT_TRUE(same_bits(one.dbias, many.dbias));
    }
  }
}

TEST_P(Norm, RowsDoNotDependOnEachOther) {
  const Case c = GetParam();
  const Data d(c);
  const Results all = run(c, d, 1, 0, c.t);
  for (int64_t t : {int64_t{0}, c.t / 2, c.t - 1}) {
    const Results one = run(c, d, 1, t, 1);
    const auto row = [&](const Floats& x) { return Floats(x.begin() + t * c.h, x.begin() + (t + 1) * c.h); };
    EXPECT_TRUE(same_bits(row(all.y), one.y));
    EXPECT_TRUE(same_bits(row(all.dx), one.dx));
  }
}

TEST_P(Norm, BitsDoNotDependOnWhereBuffersLie) {
  const Case c = GetParam();
  const Data d(c);
  const Results here = run(c, d, 1, 0, c.t);
  for (int64_t shift : {1, 3}) {
    Data moved = d;
    for (Floats* x : {&moved.x, &moved.delta, &moved.dy, &moved.dr}) x->insert(x->begin(), shift, 0.0f);
    const Results there = run(c, moved, 1, 0, c.t, shift);
    EXPECT_TRUE(same_bits(here.y, there.y));
    EXPECT_TRUE(same_bits(here.dx, there.dx));
    EXPECT_TRUE(same_bits(here.dweight, there.dweight));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Norm,
                         ::testing::Values(Case{1, 2, true}, Case{3, 5, true}, Case{3, 5, false},
                                           Case{70, 33, true}, Case{70, 33, false}, Case{5, 768, true},
                                           Case{131, 300, true}, Case{131, 300, false},
                                           Case{64, 1024, false}));

TEST(NormContract, WithoutDeltaTheInputIsTheResidual) {
  const Case c{4, 37, true};
  const Data d(c);
  auto device = make_cpu_device(1);
  Floats y = untouched(c.t * c.h), mean = untouched(c.t), rstd = untouched(c.t), dx = untouched(c.t * c.h);
  const Kernels& k = cpu_kernels();
  k.norm_forward(*device, {c.t, c.h, d.x.data(), nullptr, nullptr, nullptr, d.weight.data(), d.bias.data(),
                           epsilon, y.data(), mean.data(), rstd.data()});
  const Reference ref = forward(c, widen(d.x), widen(d.weight), widen(d.bias), epsilon);
  EXPECT_TRUE(close_to(y, ref.y, 2e-6));
  k.norm_backward_input(*device, {c.t, c.h, d.dy.data(), d.x.data(), d.weight.data(), mean.data(),
                                  rstd.data(), nullptr, dx.data()});
  EXPECT_TRUE(close_to(dx, backward(c, ref, widen(d.weight), widen(d.dy)).dx, 3e-6));
}

TEST(NormContract, InPlaceIsTheSame) {
  const Case c{4, 37, true};
  const Data d(c);
  auto device = make_cpu_device(1);
  const Kernels& k = cpu_kernels();
  const Results apart = run(c, d, 1, 0, c.t);
  Floats x = d.x, y = untouched(c.t * c.h), mean = untouched(c.t), rstd = untouched(c.t);
  k.norm_forward(*device, {c.t, c.h, x.data(), d.delta.data(), d.delta_bias.data(), x.data(), d.weight.data(),
                           d.bias.data(), epsilon, y.data(), mean.data(), rstd.data()});
  EXPECT_TRUE(same_bits(apart.residual, x));
  EXPECT_TRUE(same_bits(apart.y, y));
  Floats dr = d.dr, dy = d.dy;
  k.norm_backward_input(*device, {c.t, c.h, d.dy.data(), x.data(), d.weight.data(), mean.data(), rstd.data(),
                                  dr.data(), dr.data()});
  EXPECT_TRUE(same_bits(apart.dx, dr));
  k.norm_backward_input(*device, {c.t, c.h, dy.data(), x.data(), d.weight.data(), mean.data(), rstd.data(),
                                  d.dr.data(), dy.data()});
  EXPECT_TRUE(same_bits(apart.dx, dy));
  Floats delta = d.delta, residual = untouched(c.t * c.h);
  k.norm_forward(*device, {c.t, c.h, d.x.data(), delta.data(), d.delta_bias.data(), residual.data(),
                           d.weight.data(), d.bias.data(), epsilon, delta.data(), mean.data(), rstd.data()});
  EXPECT_TRUE(same_bits(apart.residual, residual));
  EXPECT_TRUE(same_bits(apart.y, delta));
  k.norm_backward_input(*device, {c.t, c.h, d.dy.data(), residual.data(), d.weight.data(), mean.data(),
                                  rstd.data(), d.dr.data(), residual.data()});
  EXPECT_TRUE(same_bits(apart.dx, residual));
}

// A large common offset must not cost the variance its digits.
TEST(NormContract, SurvivesALargeMean) {
  const Case c{3, 256, true};
  const Data d(c, 1000);
  const Results got = run(c, d, 1, 0, c.t);
  const Reference ref = forward(c, widen(got.residual), widen(d.weight), widen(d.bias), epsilon);
  EXPECT_TRUE(close_to(got.y, ref.y, 1e-3));
}

TEST(ResidualAdd, HasTheBitsOfTheFusedNorm) {
  const Case c{9, 45, false};
  const Data d(c);
  auto device = make_cpu_device(2);
  Floats y = untouched(c.t * c.h);
  cpu_kernels().residual_add(*device, {c.t, c.h, d.x.data(), d.delta.data(), d.delta_bias.data(), y.data()});
  EXPECT_TRUE(same_bits(y, run(c, d, 1, 0, c.t).residual));
}

TEST(ResidualAdd, TakesEachOperandAsOptional) {
  const int64_t t = 5, h = 19;
  Random random(3);
  const Floats x = random.normals(t * h), delta = random.normals(t * h), bias = random.normals(h);
  auto device = make_cpu_device(1);
  for (bool with_x : {false, true})
    for (bool with_bias : {false, true}) {
      Doubles truth = widen(delta);
      for (int64_t i = 0; i < t * h; ++i) truth[i] += (with_x ? x[i] : 0.0) + (with_bias ? bias[i % h] : 0.0);
      Floats apart = untouched(t * h), in_delta = delta, in_x = x;
      const float *px = with_x ? x.data() : nullptr, *pb = with_bias ? bias.data() : nullptr;
      cpu_kernels().residual_add(*device, {t, h, px, delta.data(), pb, apart.data()});
      EXPECT_TRUE(close_to(apart, truth, 1e-6));
      cpu_kernels().residual_add(*device, {t, h, px, in_delta.data(), pb, in_delta.data()});
      EXPECT_TRUE(same_bits(apart, in_delta));
      if (!with_x) continue;
      cpu_kernels().residual_add(*device, {t, h, in_x.data(), delta.data(), pb, in_x.data()});
      EXPECT_TRUE(same_bits(apart, in_x));
    }
}

}  // namespace
}  // namespace triax::test
