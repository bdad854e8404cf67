// Optimizer and reductions on a GPU against the host.

#include <limits>

#include "sides.h"

namespace triax::test {
namespace {

Floats values_of(const ExactSum& sum) {
  ExactSum s = sum;
  s.normalise();
  Floats out;
  for (int i = 0; i < ExactSum::digit_count; ++i) {  // all bits: halves of digits are exact floats
    out.push_back(static_cast<float>(s.digits()[i] >> 16));
    out.push_back(static_cast<float>(s.digits()[i] & 0xffff));
  }
  return out;
}

TEST_P(CudaKernels, AdamW) {
  for (const int64_t n : {1, 7, 1024, 5003, 20011})
    for (const int64_t shift : {0, 1})
      for (const int32_t skip : {0, 1})
        compare("AdamW", [&](Side& side) {
          Random random(static_cast<uint64_t>(n));
          Floats squares = random.normals(n + shift, 1e-3);
          for (float& x : squares) x = x * x;
          Array<float> w(side, random.normals(n + shift)), g(side, random.normals(n + shift)),
              m(side, random.normals(n + shift, 0.1)), v(side, squares);
          Array<UpdateScalars> scalars(side, {{.lr = 1e-3f,
                                               .bias_correction1 = 0.19f,
                                               .bias_correction2 = 0.0975f,
                                               .grad_scale = 0.7f,
                                               .skip = skip}});
          Array<bf16> half(side, std::vector<bf16>(static_cast<size_t>(n + shift)));
          side.kernels.adamw(side.device, {.n = n,
                                           .weight = w.data() + shift,
                                           .grad = g.data() + shift,
                                           .exp_avg = m.data() + shift,
                                           .exp_avg_sq = v.data() + shift,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.95f,
                                           .epsilon = 1e-8f,
                                           .weight_decay = 0.1f,
                                           .scalars = scalars.data(),
                                           .rounded = n % 2 ? half.data() + shift : nullptr});
          return Outputs{{"weight", w.read(), 1e-6},
                         {"rounded", floats(half.read()), 8e-3},
                         {"exp_avg", m.read(), 1e-6},
                         {"exp_avg_sq", v.read(), 1e-6}};
        });
}

TEST_P(CudaKernels, SquaredNormIsExact) {
  const auto check = [&](const char* what, const Floats& values, bool only_non_finite, int64_t shift) {
    compare(what, [&](Side& side) {
      Array<float> x(side, values);
      Array<ExactSum> sum(side, std::vector<ExactSum>(1));
      const int64_t n = static_cast<int64_t>(values.size()) - shift, half = n / 3;
      side.kernels.squared_norm(side.device, {half, x.data() + shift, sum.data(), only_non_finite});
      side.kernels.squared_norm(side.device,
                                {n - half, x.data() + shift + half, sum.data(), only_non_finite});
      side.kernels.normalise_sums(side.device, {1, sum.data()});
      return Outputs{{"digits", values_of(sum.read()[0]), 0}};
    });
  };
  Floats ordinary = Random(1).normals(20011), wide = ordinary;
  Random random(2);
  for (float& x : wide) x = std::ldexp(x, static_cast<int>(random.below(200)) - 140);
  Floats broken = ordinary;
  broken[77] = std::numeric_limits<float>::infinity(), broken[9000] = std::nanf("");
  for (const int64_t shift : {0, 3}) {
    check("ordinary", ordinary, false, shift);
    check("of very different size", wide, false, shift);
    check("not finite", broken, false, shift);
    check("only what is not finite", broken, true, shift);
  }
}

TEST_P(CudaKernels, UpdateDecision) {
  for (const double max_norm : {0.0, 0.5, 1e9})
    for (const double loss : {3.0, std::nan("")})
      compare("decision", [&](Side& side) {
        std::vector<ExactSum> sums(2);
        sums[0].add(1.7e3), sums[0].add(1e-30), sums[1].add(loss);
        Array<ExactSum> both(side, sums);
        Array<UpdateScalars> scalars(side, std::vector<UpdateScalars>(1));
        side.kernels.decide_update(side.device, {both.data(), both.data() + 1, max_norm, scalars.data()});
        const UpdateScalars got = scalars.read()[0];
        return Outputs{{"scalars", {got.grad_scale, static_cast<float>(got.skip), got.lr}, 0}};
      });
}

TEST_P(CudaKernels, AddCastAndSearch) {
  for (const int64_t n : {1, 1023, 4099})
    for (const int64_t shift : {0, 1})
      compare("arrays", [&](Side& side) {
        Floats values = Random(4).normals(n + shift);
        Array<float> x(side, values), y(side, Random(5).normals(n + shift));
        Array<bf16> rounded_x(side, as<bf16>(untouched(n + shift)));
        Array<int64_t> index(side, {5, 5, 5});
        side.kernels.add(side.device, {n, x.data() + shift, y.data() + shift});
        side.kernels.cast(side.device, {n, x.data() + shift, rounded_x.data() + shift});
        side.kernels.find_non_finite(side.device, {n, x.data() + shift, index.data()});
        values.back() = std::numeric_limits<float>::infinity();
        Array<float> one(side, values);
        side.kernels.find_non_finite(side.device, {n, one.data() + shift, index.data() + 1});
        values[static_cast<size_t>(shift + n / 2)] = std::nanf("");
        Array<float> two(side, values);
        side.kernels.find_non_finite(side.device, {n, two.data() + shift, index.data() + 2});
        Floats found;
        for (const int64_t i : index.read()) found.push_back(static_cast<float>(i));
        Floats cast = floats(rounded_x.read());
        cast.erase(cast.begin(), cast.begin() + shift);
        return Outputs{{"sum", y.read(), 0}, {"bf16", cast, 0}, {"index", found, 0}};
      });
}

}  // namespace
}  // namespace triax::test
