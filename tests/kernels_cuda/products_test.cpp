// Matrix products and attention on a GPU against the host.

#include "sides.h"

namespace triax::test {
namespace {

TEST_P(CudaKernels, Gemm) {
  struct Case {
    int64_t m, n, k, gap, shift;
  };
  for (const Case& c : {Case{17, 40, 33, 0, 0}, Case{64, 24, 16, 8, 0}, Case{1, 9, 7, 3, 1}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const int variant : {0, 1, 2}) {  // plain, accumulates, has a bias
          const auto run = [&](Side& side, auto operand, auto result) {
            using T = decltype(operand);
            using R = decltype(result);
            const int64_t lda = (ta ? c.m : c.k) + c.gap, ldb = (tb ? c.k : c.n) + c.gap, ldc = c.n + c.gap;
            Random random(9);
            Array<T> a(side, as<T>(random.normals((ta ? c.k : c.m) * lda + c.shift))),
                b(side, as<T>(random.normals((tb ? c.n : c.k) * ldb + c.shift)));
            Array<R> d(side, as<R>(variant == 1 ? random.normals(c.m * ldc + c.shift)
                                                : Floats(c.m * ldc + c.shift, 5))),
                bias(side, as<R>(random.normals(c.n + c.shift)));
            side.kernels.gemm(side.device,
                              {.transpose_a = ta,
                               .transpose_b = tb,
                               .m = c.m,
                               .n = c.n,
                               .k = c.k,
                               .a = a.data() + c.shift,
                               .lda = lda,
                               .b = b.data() + c.shift,
                               .ldb = ldb,
                               .c = d.data() + c.shift,
                               .ldc = ldc,
                               .beta = variant == 1 ? 1.0f : 0.0f,
                               .bias = variant == 2 ? ConstElements(bias.data() + c.shift) : nullptr});
            // What lies between the rows is compared too: nobody may write there.
            return Outputs{{"c", floats(d.read()), stored<R>}};
          };
          compare("GEMM f32", [&](Side& side) { return run(side, float{}, float{}); });
          compare("GEMM bf16 to f32", [&](Side& side) { return run(side, bf16{}, float{}); });
          if (variant != 1) compare("GEMM bf16", [&](Side& side) { return run(side, bf16{}, bf16{}); });
        }
}

// Against the host's product and GELU one after the other, with the bias in z.
TEST_P(CudaKernels, ProductsWithGelu) {
  const Gpu& g = gpu(GetParam());
  ASSERT_TRUE(g.kernels->fuses_gelu);
  EXPECT_TRUE(g.kernels->fuses_gelu(DType::bf16, 64));
  EXPECT_FALSE(g.kernels->fuses_gelu(DType::bf16, 12));
  EXPECT_FALSE(g.kernels->fuses_gelu(DType::f32, 64));
  struct Case {
    int64_t t, f, h;
  };
  for (const Case& c : {Case{17, 40, 24}, Case{64, 128, 32}, Case{1, 8, 16}})
    for (const bool with_bias : {true, false})
      compare("products with GELU", [&](Side& side) {
        Random random(3);
        Array<bf16> x(side, as<bf16>(random.normals(c.t * c.h))),
            w(side, as<bf16>(random.normals(c.f * c.h))), bias(side, as<bf16>(random.normals(c.f))),
            back(side, as<bf16>(random.normals(c.h * c.f))), z(side, as<bf16>(untouched(c.t * c.f))),
            y(side, as<bf16>(untouched(c.t * c.f))), dz(side, as<bf16>(untouched(c.t * c.f)));
        Gemm up;
        up.transpose_b = true;
        up.m = c.t, up.n = c.f, up.k = c.h;
        up.a = x.data(), up.lda = c.h, up.b = w.data(), up.ldb = c.h, up.c = y.data(), up.ldc = c.f;
        if (with_bias) up.bias = bias.data();
        Gemm down;
        down.m = c.t, down.n = c.f, down.k = c.h;
        down.a = x.data(), down.lda = c.h, down.b = back.data(), down.ldb = c.f, down.c = dz.data(),
        down.ldc = c.f;
        if (side.kernels.gemm_gelu) {
          side.kernels.gemm_gelu(side.device, {up, z.data()});
          side.kernels.gemm_gelu_backward(side.device, {down, z.data()});
        } else {
          const Array<bf16> zeros(side, as<bf16>(Floats(c.f, 0)));
          up.c = z.data();
          side.kernels.gemm(side.device, up);
          side.kernels.gemm(side.device, down);
          side.kernels.bias_gelu_forward(side.device, {c.t, c.f, z.data(), zeros.data(), y.data()});
          side.kernels.bias_gelu_backward(side.device,
                                          {c.t, c.f, z.data(), zeros.data(), dz.data(), dz.data()});
        }
        return Outputs{{"z", floats(z.read()), stored<bf16>},
                       {"y", floats(y.read()), stored<bf16>},
                       {"dz", floats(dz.read()), 2 * stored<bf16>}};
      });
}

struct Heads {
  int64_t b, s, heads, kv_heads, d;
  int64_t row() const { return (heads + 2 * kv_heads) * d; }
  std::string text() const {
    return "attention b" + std::to_string(b) + " s" + std::to_string(s) + " heads" + std::to_string(heads) +
           "/" + std::to_string(kv_heads) + " d" + std::to_string(d);
  }
};

Outputs attention(const Heads& c, Side& side, auto type) {
  using T = decltype(type);
  Random random(static_cast<uint64_t>(c.s * 100 + c.d));
  const int64_t rows = c.b * c.s;
  Array<T> qkv(side, as<T>(random.normals(rows * c.row(), 1.2))),
      dout(side, as<T>(random.normals(rows * c.heads * c.d))),
      out(side, as<T>(untouched(rows * c.heads * c.d))), dqkv(side, as<T>(untouched(rows * c.row())));
  Array<float> lse(side, untouched(rows * c.heads));
  side.kernels.attention_forward(side.device,
                                 {c.b, c.s, c.heads, c.kv_heads, c.d, qkv.data(), out.data(), lse.data()});
  side.kernels.attention_backward(side.device, {c.b, c.s, c.heads, c.kv_heads, c.d, qkv.data(), out.data(),
                                                lse.data(), dout.data(), dqkv.data()});
  // In bf16 the weights are rounded before they meet the values, here and there in different places.
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 3e-2;
  return {{"out", floats(out.read()), tolerance},
          {"lse", lse.read(), sizeof(T) == 4 ? 1e-5 : 1e-4},
          {"dqkv", floats(dqkv.read()), tolerance}};
}

TEST_P(CudaKernels, AttentionOfAnyHeadSize) {
  for (const Heads& c :
       {Heads{1, 1, 1, 1, 1}, Heads{2, 7, 2, 1, 5}, Heads{1, 65, 4, 2, 16}, Heads{1, 33, 3, 3, 64},
        Heads{1, 40, 2, 1, 128}, Heads{1, 20, 1, 1, 256}, Heads{1, 18, 2, 2, 100}})
    compare_types(c.text(), [&](Side& side, auto type) { return attention(c, side, type); });
}

TEST_P(CudaKernels, AttentionOnTensorCores) {
  for (const Heads& c :
       {Heads{1, 64, 1, 1, 64}, Heads{2, 70, 2, 1, 64}, Heads{1, 130, 4, 2, 64}, Heads{1, 1, 2, 2, 64},
        Heads{1, 129, 2, 1, 128}, Heads{1, 64, 2, 2, 128}, Heads{1, 17, 3, 1, 128}})
    compare(c.text(), [&](Side& side) { return attention(c, side, bf16{}); });
}

TEST_P(CudaKernels, AttentionOnACache) {
  for (const Heads& c : {Heads{1, 70, 4, 2, 8}, Heads{1, 130, 2, 1, 64}, Heads{1, 9, 3, 3, 33}})
    for (const int64_t steps : {int64_t{1}, int64_t{7}, c.s}) {
      if (steps == 1 && c.s > 100) continue;  // long, and 7 at a time tells as much
      compare_types(c.text() + " cached", [&](Side& side, auto type) {
        using T = decltype(type);
        const int64_t capacity = (c.s + cache_block - 1) / cache_block * cache_block, width = c.heads * c.d;
        const Floats values = Random(6).normals(c.s * c.row(), 1.2),
                     nothing = untouched(c.kv_heads * capacity * c.d);
        Array<T> qkv(side, as<T>(values)), keys(side, as<T>(nothing)), cached_values(side, as<T>(nothing)),
            out(side, as<T>(untouched(c.s * width))), whole(side, as<T>(untouched(c.s * width)));
        Array<float> lse(side, untouched(c.s * c.heads));
        for (int64_t first = 0; first < c.s; first += steps)
          side.kernels.attention_cached(
              side.device,
              {std::min(steps, c.s - first), first, capacity, c.heads, c.kv_heads, c.d,
               qkv.data() + first * c.row(), keys.data(), cached_values.data(), out.data() + first * width});
        const Floats got = floats(out.read());
        side.kernels.attention_forward(
            side.device, {1, c.s, c.heads, c.kv_heads, c.d, qkv.data(), whole.data(), lse.data()});
        if (sizeof(T) == 4 || c.d != 64) {
          EXPECT_TRUE(same_bits(got, floats(whole.read()))) << c.text() << ", " << steps << " at a time";
        }
        return Outputs{{"out", got, sizeof(T) == 4 ? 1e-5 : 3e-2}};
      });
    }
}

TEST_P(CudaKernels, RefuseWhatTheyCannotDo) {
  Gpu& g = gpu(GetParam());
  EXPECT_ANY_THROW(g.kernels->attention_forward(*g.device, {1, 1, 1, 1, 300, nullptr, nullptr, nullptr}));
  EXPECT_ANY_THROW(
      g.kernels->attention_cached(*g.device, {2, 63, 64, 1, 1, 4, nullptr, nullptr, nullptr, nullptr}));
  EXPECT_ANY_THROW(g.kernels->rope(*g.device, {.b = 1, .s = 1, .heads = 1, .head_size = 3}));
  const auto host = make_cpu_device(1);
  EXPECT_ANY_THROW(g.kernels->add(*host, {1, nullptr, nullptr}));
}

}  // namespace
}  // namespace triax::test
