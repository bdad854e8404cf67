// Kernels that go over rows or arrays, on a GPU against the host.

#include "sides.h"

namespace triax::test {
namespace {

Floats normals(int64_t n, uint64_t seed, double spread = 1) {
  return Random(seed).normals(n, spread);
}

struct Shape {
  int64_t t, h;
};
// A warp per row, a block per row, several packs per lane, widths that no vector divides.
const Shape shapes[] = {{1, 8}, {5, 768}, {7, 33}, {3, 1600}, {2, 4096}, {130, 64}, {3, 2049}};

std::string text(const Shape& s) {
  return std::to_string(s.t) + " x " + std::to_string(s.h);
}

TEST_P(CudaKernels, ResidualAdd) {
  for (const Shape& s : shapes)
    for (const bool with_x : {true, false})
      for (const bool with_bias : {true, false})
        compare_types("residual add " + text(s), [&](Side& side, auto type) {
          using T = decltype(type);
          Array<T> x(side, as<T>(normals(s.t * s.h, 1))), delta(side, as<T>(normals(s.t * s.h, 2))),
              bias(side, as<T>(normals(s.h, 3))), y(side, as<T>(untouched(s.t * s.h)));
          side.kernels.residual_add(side.device,
                                    {s.t, s.h, with_x ? ConstElements(x.data()) : nullptr, delta.data(),
                                     with_bias ? ConstElements(bias.data()) : nullptr, y.data()});
          return Outputs{{"y", floats(y.read()), sizeof(T) == 4 ? 0 : stored<T>}};
        });
}

TEST_P(CudaKernels, Norms) {
  for (const Shape& s : shapes)
    for (const bool layer : {true, false})
      for (const bool with_delta : {true, false})
        compare_types(std::string(layer ? "LayerNorm " : "RMSNorm ") + text(s), [&](Side& side, auto type) {
          using T = decltype(type);
          const int64_t n = s.t * s.h;
          Array<T> x(side, as<T>(normals(n, 1))), delta(side, as<T>(normals(n, 2))),
              bias(side, as<T>(normals(s.h, 3))), weight(side, as<T>(normals(s.h, 4))),
              shift(side, as<T>(normals(s.h, 5))), residual(side, as<T>(untouched(n))),
              y(side, as<T>(untouched(n))), dy(side, as<T>(normals(n, 6))), dr(side, as<T>(normals(n, 7))),
              dx(side, as<T>(untouched(n)));
          Array<float> mean(side, untouched(s.t)), rstd(side, untouched(s.t)), dweight(side, normals(s.h, 8)),
              dbias(side, normals(s.h, 9));
          float* m = layer ? mean.data() : nullptr;
          const ConstElements r = with_delta ? ConstElements(residual.data()) : ConstElements(x.data());
          side.kernels.norm_forward(
              side.device, {s.t, s.h, x.data(), with_delta ? ConstElements(delta.data()) : nullptr,
                            with_delta ? ConstElements(bias.data()) : nullptr, residual.data(), weight.data(),
                            layer ? ConstElements(shift.data()) : nullptr, 1e-5f, y.data(), m, rstd.data()});
          side.kernels.norm_backward_input(side.device,
                                           {s.t, s.h, dy.data(), r, weight.data(), m, rstd.data(),
                                            with_delta ? ConstElements(dr.data()) : nullptr, dx.data()});
          side.kernels.norm_backward_weight(side.device, {s.t, s.h, dy.data(), r, m, rstd.data(),
                                                          dweight.data(), layer ? dbias.data() : nullptr});
          // As a layer has them: y where delta was, dx where what was normalised was.
          Array<T> y_there(side, delta.read()), dx_there(side, with_delta ? residual.read() : x.read());
          if (with_delta)
            side.kernels.norm_forward(
                side.device,
                {s.t, s.h, x.data(), y_there.data(), bias.data(), residual.data(), weight.data(),
                 layer ? ConstElements(shift.data()) : nullptr, 1e-5f, y_there.data(), m, rstd.data()});
          side.kernels.norm_backward_input(
              side.device, {s.t, s.h, dy.data(), dx_there.data(), weight.data(), m, rstd.data(),
                            with_delta ? ConstElements(dr.data()) : nullptr, dx_there.data()});
          if (with_delta) {
            EXPECT_EQ(floats(y_there.read()), floats(y.read()));
          }
          EXPECT_EQ(floats(dx_there.read()), floats(dx.read()));
          Outputs out{{"y", floats(y.read()), stored<T>},
                      {"rstd", rstd.read(), in_fp32},
                      {"dx", floats(dx.read()), sizeof(T) == 4 ? 2e-5 : stored<T>},
                      {"dweight", dweight.read(), 1e-4},
                      {"dbias", dbias.read(), in_fp32}};
          if (with_delta)
            out.push_back({"residual", floats(residual.read()), sizeof(T) == 4 ? 0 : stored<T>});
          if (layer) out.push_back({"mean", mean.read(), in_fp32});
          return out;
        });
}

TEST_P(CudaKernels, BiasGradient) {
  for (const Shape& s : {Shape{1, 5}, Shape{300, 100}, Shape{65, 264}, Shape{1000, 7}})
    compare_types("bias gradient " + text(s), [&](Side& side, auto type) {
      using T = decltype(type);
      Array<T> dy(side, as<T>(normals(s.t * s.h, 1)));
      Array<float> dbias(side, normals(s.h, 2));
      side.kernels.bias_backward(side.device, {s.t, s.h, dy.data(), dbias.data()});
      return Outputs{{"dbias", dbias.read(), in_fp32}};
    });
}

TEST_P(CudaKernels, Activations) {
  for (const Shape& s : {Shape{3, 8}, Shape{5, 37}, Shape{4, 2056}})
    compare_types("activations " + text(s), [&](Side& side, auto type) {
      using T = decltype(type);
      const int64_t n = s.t * s.h;
      Floats wide = normals(n, 1, 4);
      wide[0] = 60, wide[1] = -60, wide[2] = -13;  // where the exponential is none, and where it is tiny
      Array<T> u(side, as<T>(wide)), bias(side, as<T>(normals(s.h, 2, 0.1))), dy(side, as<T>(normals(n, 3))),
          y(side, as<T>(untouched(n))), du(side, as<T>(untouched(n))), gu(side, as<T>(normals(2 * n, 4, 3))),
          gy(side, as<T>(untouched(n))), dgu(side, as<T>(untouched(2 * n)));
      side.kernels.bias_gelu_forward(side.device, {s.t, s.h, u.data(), bias.data(), y.data()});
      Array<T> y_again(side, as<T>(untouched(n))), gy_again(side, as<T>(untouched(n)));
      side.kernels.bias_gelu_backward(
          side.device, {s.t, s.h, u.data(), bias.data(), dy.data(), du.data(), y_again.data()});
      side.kernels.swiglu_forward(side.device, {s.t, s.h, gu.data(), gy.data()});
      side.kernels.swiglu_backward(side.device,
                                   {s.t, s.h, gu.data(), dy.data(), dgu.data(), gy_again.data()});
      EXPECT_TRUE(same_bits(floats(y_again.read()), floats(y.read())));
      EXPECT_TRUE(same_bits(floats(gy_again.read()), floats(gy.read())));
      // In place: what the gradients are made of gives its memory.
      Array<T> u_du(side, u.read()), dy_y(side, dy.read()), gu_dgu(side, gu.read()), dy_gy(side, dy.read());
      side.kernels.bias_gelu_backward(
          side.device, {s.t, s.h, u_du.data(), bias.data(), dy_y.data(), u_du.data(), dy_y.data()});
      side.kernels.swiglu_backward(side.device,
                                   {s.t, s.h, gu_dgu.data(), dy_gy.data(), gu_dgu.data(), dy_gy.data()});
      EXPECT_TRUE(same_bits(floats(dy_y.read()), floats(y.read())));
      EXPECT_TRUE(same_bits(floats(u_du.read()), floats(du.read())));
      Array<T> dy_du(side, dy.read());
      side.kernels.bias_gelu_backward(side.device,
                                      {s.t, s.h, u.data(), bias.data(), dy_du.data(), dy_du.data(), nullptr});
      EXPECT_TRUE(same_bits(floats(dy_du.read()), floats(du.read())));
      EXPECT_TRUE(same_bits(floats(gu_dgu.read()), floats(dgu.read())));
      EXPECT_TRUE(same_bits(floats(dy_gy.read()), floats(gy.read())));
      // Without a bias, where the GPU keeps u with it.
      Array<T> none(side, as<T>(Floats(s.h, 0))), z(side, as<T>(untouched(n))), dz(side, as<T>(untouched(n)));
      const ConstElements no_bias =
          side.device.kind() == DeviceKind::cuda ? ConstElements() : ConstElements(none.data());
      side.kernels.bias_gelu_forward(side.device, {s.t, s.h, u.data(), no_bias, z.data()});
      side.kernels.bias_gelu_backward(side.device, {s.t, s.h, u.data(), no_bias, dy.data(), dz.data()});
      return Outputs{{"gelu without a bias", floats(z.read()), stored<T>},
                     {"gelu gradient without a bias", floats(dz.read()), stored<T>},
                     {"gelu", floats(y.read()), stored<T>},
                     {"gelu gradient", floats(du.read()), stored<T>},
                     {"swiglu", floats(gy.read()), stored<T>},
                     {"swiglu gradient", floats(dgu.read()), stored<T>}};
    });
}

TEST_P(CudaKernels, DropoutHasTheHostsMask) {
  for (const Shape& s : {Shape{3, 64}, Shape{5, 33}})
    for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 34) + 4, uint64_t{7}})
      compare_types("dropout " + text(s), [&](Side& side, auto type) {
        using T = decltype(type);
        Array<T> x(side, as<T>(normals(s.t * s.h, 1))), bias(side, as<T>(normals(s.h, 2))),
            y(side, as<T>(untouched(s.t * s.h)));
        const RandomStream bits(11, "site");
        Array<uint64_t> domain(side, {bits.domain()});
        side.kernels.dropout(side.device,
                             {s.t, s.h, x.data(), first ? ConstElements(bias.data()) : nullptr, y.data(),
                              bits.key(), domain.data(), first, 0x40000000u, 4.0f / 3});
        Floats got = floats(y.read()), kept;
        for (const float v : got) kept.push_back(v != 0 ? 1.0f : 0.0f);
        return Outputs{{"y", got, stored<T>}, {"mask", kept, 0}};
      });
}

TEST_P(CudaKernels, Rope) {
  struct Case {
    int64_t b, s, heads, d, extra, first;
    bool inverse;
  };
  for (const Case& c :
       {Case{2, 5, 3, 64, 64, 0, false}, Case{1, 3, 2, 6, 5, 1000, true}, Case{1, 1, 4, 128, 0, 77, false}})
    for (const RopeStretch& stretch : {RopeStretch{}, RopeStretch{8, 8192, 1, 4}})
      compare_types("rope", [&](Side& side, auto type) {
        using T = decltype(type);
        const int64_t row = c.heads * c.d + c.extra;
        Array<T> x(side, as<T>(normals(c.b * c.s * row, 1)));
        side.kernels.rope(side.device,
                          {c.b, c.s, c.heads, c.d, row, x.data(), 10000.0f, c.inverse, c.first, stretch});
        return Outputs{{"x", floats(x.read()), sizeof(T) == 4 ? 1e-6 : stored<T>}};
      });
}

TEST_P(CudaKernels, Embeddings) {
  struct Case {
    int64_t t, h, rows, first_row, vocabulary;
  };
  for (const Case& c : {Case{100, 40, 30, 10, 60}, Case{70, 33, 5, 0, 5}, Case{1, 8, 4, 0, 4},
                        Case{64, 520, 1000, 0, 1000}, Case{90, 16, 1, 0, 1}})
    compare_types("embedding", [&](Side& side, auto type) {
      using T = decltype(type);
      Random random(3);
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < c.t; ++i) tokens.push_back(static_cast<int32_t>(random.below(c.vocabulary)));
      Array<int32_t> ids(side, tokens);
      Array<T> table(side, as<T>(normals(c.rows * c.h, 1))), y(side, as<T>(untouched(c.t * c.h))),
          dy(side, as<T>(normals(c.t * c.h, 2)));
      Array<float> dtable(side, normals(c.rows * c.h, 4));
      side.kernels.embedding_forward(side.device,
                                     {c.t, c.h, c.rows, c.first_row, ids.data(), table.data(), y.data()});
      side.kernels.embedding_backward(side.device,
                                      {c.t, c.h, c.rows, c.first_row, ids.data(), dy.data(), dtable.data()});
      // In the order of the host, one addition after the other: the same bits.
      return Outputs{{"y", floats(y.read()), 0}, {"dtable", dtable.read(), 0}};
    });
}

TEST_P(CudaKernels, Positions) {
  struct Case {
    int64_t t, s, h, first;
  };
  for (const Case& c : {Case{24, 8, 40, 0}, Case{10, 8, 33, 13}, Case{3, 8, 16, 5}})
    compare_types("positions", [&](Side& side, auto type) {
      using T = decltype(type);
      Array<T> positions(side, as<T>(normals(c.s * c.h, 1))), y(side, as<T>(normals(c.t * c.h, 2))),
          dy(side, as<T>(normals(c.t * c.h, 3)));
      Array<float> dpositions(side, normals(c.s * c.h, 4));
      side.kernels.position_forward(side.device, {c.t, c.s, c.h, c.first, positions.data(), y.data()});
      side.kernels.position_backward(side.device, {c.t, c.s, c.h, c.first, dy.data(), dpositions.data()});
      return Outputs{{"y", floats(y.read()), 0}, {"dpositions", dpositions.read(), 0}};
    });
}

TEST_P(CudaKernels, CrossEntropy) {
  struct Case {
    int64_t t, valid, ld, first_row;
  };
  for (const Case& c :
       {Case{5, 1000, 1008, 0}, Case{3, 77, 77, 50}, Case{4, 5003, 5056, 5003}, Case{2, 3, 8, 0}})
    compare_types("cross-entropy", [&](Side& side, auto type) {
      using T = decltype(type);
      Floats logits = normals(c.t * c.ld, 1, 3);
      std::vector<int32_t> wanted;
      Random random(5);
      for (int64_t t = 0; t < c.t; ++t) wanted.push_back(static_cast<int32_t>(random.below(2 * c.valid)));
      wanted[0] = -100;
      if (c.t > 1) wanted[1] = static_cast<int32_t>(c.first_row + c.valid - 1);
      Array<T> x(side, as<T>(logits)), apart(side, as<T>(untouched(c.t * c.ld)));
      Array<int32_t> targets(side, wanted);
      Array<float> maximum(side, untouched(c.t)), sum_exp(side, untouched(c.t)), logit(side, untouched(c.t));
      Array<ExactSum> loss(side, std::vector<ExactSum>(1));
      side.kernels.cross_entropy_max(side.device, {c.t, c.valid, c.ld, x.data(), maximum.data()});
      side.kernels.cross_entropy_sum(side.device, {c.t, c.valid, c.ld, c.first_row, x.data(), maximum.data(),
                                                   targets.data(), sum_exp.data(), logit.data()});
      side.kernels.cross_entropy_loss(side.device,
                                      {c.t, sum_exp.data(), logit.data(), targets.data(), loss.data()});
      side.kernels.cross_entropy_backward(
          side.device, {c.t, c.valid, c.ld, c.first_row, x.data(), maximum.data(), sum_exp.data(),
                        targets.data(), 0.25f, apart.data()});
      const Floats gradient = floats(apart.read());
      side.kernels.cross_entropy_backward(
          side.device, {c.t, c.valid, c.ld, c.first_row, x.data(), maximum.data(), sum_exp.data(),
                        targets.data(), 0.25f, x.data()});
      EXPECT_TRUE(same_bits(floats(x.read()), gradient)) << "in place";
      return Outputs{{"maximum", maximum.read(), 0},
                     {"sum_exp", sum_exp.read(), in_fp32},
                     {"target_logit", logit.read(), 0},
                     {"loss", {static_cast<float>(loss.read()[0].value())}, in_fp32},
                     {"gradient", gradient, stored<T>}};
    });
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Emulated, CudaKernels, ::testing::Values(GpuKind::emulated));
INSTANTIATE_TEST_SUITE_P(Real, CudaKernels, ::testing::Values(GpuKind::real));

}  // namespace triax::test
