// The parallel layers against plain double code on the whole matrices.

#include "parallel/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "comm/local_ranks.h"
#include "core/rng.h"
#include "parallel/vocabulary.h"

namespace triax {
namespace {

using Matrix = std::vector<double>;

// The whole of a parameter, as its ranks initialise it.
Matrix whole_parameter(const std::string& name, int64_t n, float stddev, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  RandomStream(seed, name).normal(0, n, 0, stddev, values.data());
  return {values.begin(), values.end()};
}

std::vector<float> random(const std::string& name, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  RandomStream(99, name).normal(0, n, 0, 1, values.data());
  return values;
}

// y [m, n] = x [m, k] w [n, k]^T
Matrix multiply(const std::vector<float>& x, const Matrix& w, int64_t m, int64_t n, int64_t k) {
  Matrix y(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        y[static_cast<size_t>(i * n + j)] +=
            x[static_cast<size_t>(i * k + l)] * w[static_cast<size_t>(j * k + l)];
  return y;
}

void expect_near(const float* a, const Matrix& b, const std::string& what) {
  for (size_t i = 0; i < b.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(b[i]))) << what << " at " << i;
}

struct Rank {
  Rank(Communicator& world, int tensor, bool sequence_parallel)
      : grid({{"tp", tensor}}),
        device(make_cpu_device(1)),
        mesh(grid, world, {}),
        params(grid, world.rank(), *device),
        scratch(*device),
        context{*device, cpu_kernels(), mesh, params, scratch, sequence_parallel} {
    scratch.commit(1 << 20);
  }
  Pass pass() { return {.context = context, .slot = {}}; }
  Grid grid;
  std::unique_ptr<Device> device;
  Mesh mesh;
  ParamStore params;
  Scratch scratch;
  Context context;
};

void on_ranks(int tensor, const std::function<void(Rank&)>& body, bool sequence_parallel = false) {
  CommOptions options;
  options.check_order = true;
  options.timeout = std::chrono::seconds(30);
  run_local_ranks(tensor, options, [&](Communicator& world, int) {
    Rank rank(world, tensor, sequence_parallel);
    body(rank);
  });
}

TEST(ColumnLinear, GatheredOutputAndItsGradientAreThoseOfTheWholeMatrix) {
  constexpr int64_t t = 5, in = 7, out = 12;
  const Matrix w = whole_parameter("layer.weight", out * in, 1.0F, 3);
  const auto x = random("x", t * in), dy = random("dy", t * out);
  const Matrix y = multiply(x, w, t, out, in);
  Matrix wt(w.size());  // [in, out]
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      wt[static_cast<size_t>(i * out + o)] = w[static_cast<size_t>(o * in + i)];
  const Matrix dx = multiply(dy, wt, t, in, out);
  for (int tensor : {1, 2, 3, 4})
    on_ranks(tensor, [&](Rank& rank) {
      ColumnLinear layer({{"layer", out}}, in, true, 1.0F);
      layer.declare(rank.params);
      rank.params.commit();
      rank.params.initialise(3);
      Pass pass = rank.pass();
      std::vector<float> full(t * out), local(t * out / tensor), back(t * in);
      const Tensor tx = Tensor::of(x.data(), {t, in}), tlocal = Tensor::of(local.data(), {t, out / tensor});
      layer.forward_gathered(pass, tx, Tensor::of(full.data(), {t, out}));
      expect_near(full.data(), y, "y");
      layer.scatter_gradient(pass, Tensor::of(dy.data(), {t, out}), tlocal);
      layer.backward_input(pass, tx, tlocal, Tensor::of(back.data(), {t, in}));
      expect_near(back.data(), dx, "dx");
      if (tensor > 1) return;
      // On one rank dx may lie where x does: dW has been taken by then.
      const auto first = rank.params.grads().f32();
      const std::vector<float> dw(first, first + out * in);
      rank.params.zero_grads();
      std::vector<float> x_dx = x;
      const Tensor there = Tensor::of(x_dx.data(), {t, in});
      layer.backward_input(pass, there, tlocal, there);
      EXPECT_EQ(x_dx, back);
      EXPECT_EQ(std::vector<float>(first, first + out * in), dw);
    });
}

TEST(RowLinear, UnsplitInputAndTheBiasOnce) {
  constexpr int64_t t = 4, in = 12, out = 5;
  const Matrix w = whole_parameter("layer.weight", out * in, 1.0F, 4);
  const auto x = random("x", t * in), dy = random("dy", t * out);
  const Matrix y = multiply(x, w, t, out, in);
  Matrix wt(w.size());
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      wt[static_cast<size_t>(i * out + o)] = w[static_cast<size_t>(o * in + i)];
  const Matrix dx = multiply(dy, wt, t, in, out);
  for (int tensor : {1, 2, 3, 4})
    on_ranks(tensor, [&](Rank& rank) {
      RowLinear layer("layer", in, out, true, 1.0F);
      layer.declare(rank.params);
      rank.params.commit();
      rank.params.initialise(4);
      Pass pass = rank.pass();
      const int64_t width = in / tensor;
      std::vector<float> local(t * width), dlocal(t * width), result(t * out), back(t * in);
      const Tensor tlocal = Tensor::of(local.data(), {t, width}),
                   tdlocal = Tensor::of(dlocal.data(), {t, width});
      const Tensor tdy = Tensor::of(dy.data(), {t, out});
      layer.split_input(pass, Tensor::of(x.data(), {t, in}), tlocal);
      layer.forward(pass, tlocal, Tensor::of(result.data(), {t, out}));
      expect_near(result.data(), y, "y");  // without the bias, which its consumer adds
      layer.backward_input(pass, tlocal, tdy, tdlocal);
      layer.gather_gradient(pass, tdlocal, Tensor::of(back.data(), {t, in}));
      expect_near(back.data(), dx, "dx");
      // The bias's gradient is the whole sum on every rank, not a t-th part of it nor t times it.
      const Tensor grad = rank.params.grad(1);
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < t; ++i) sum += dy[static_cast<size_t>(i * out + o)];
        EXPECT_NEAR(grad.f32()[o], sum, 1e-5);
      }
    });
}

// Each rank has its rows of x and y: column after row, the pair of a block, against the whole matrices.
TEST(SequenceParallel, RowsInAndRowsOutAreThoseOfTheWholeMatrices) {
  constexpr int64_t t = 12, n = 4, wide = 24;
  const Matrix up = whole_parameter("up.weight", wide * n, 1.0F, 8),
               down = whole_parameter("down.weight", n * wide, 1.0F, 8);
  const auto x = random("x", t * n), dy = random("dy", t * n);
  const Matrix middle = multiply(x, up, t, wide, n);
  const Matrix y = multiply({middle.begin(), middle.end()}, down, t, n, wide);
  for (int tensor : {2, 3, 4})
    on_ranks(
        tensor,
        [&](Rank& rank) {
          ColumnLinear column({{"up", wide}}, n, true, 1.0F);
          RowLinear row("down", wide, n, true, 1.0F);
          column.declare(rank.params);
          row.declare(rank.params);
          rank.params.commit();
          rank.params.initialise(8);
          Pass pass = rank.pass();
          const int64_t rows = t / tensor, width = wide / tensor, me = rank.mesh.tp().rank();
          const Tensor xr = Tensor::of(x.data(), {t, n}).rows(me * rows, rows),
                       dyr = Tensor::of(dy.data(), {t, n}).rows(me * rows, rows);
          std::vector<float> between(t * width), d_between(t * width), out(rows * n), dx(rows * n);
          const Tensor tb = Tensor::of(between.data(), {t, width}),
                       tdb = Tensor::of(d_between.data(), {t, width});
          column.forward(pass, xr, tb);
          row.forward(pass, tb, Tensor::of(out.data(), {rows, n}));
          const auto own = y.begin() + me * rows * n;
          expect_near(out.data(), Matrix(own, own + rows * n), "y");

          row.backward_input(pass, tb, dyr, tdb);
          column.backward_input(pass, xr, tdb, Tensor::of(dx.data(), {rows, n}));
          // The adjoint: <dy, y(x)> = <dx, x>, over all rows of all ranks.
          double products[2] = {};
          for (int64_t i = 0; i < rows * n; ++i) {
            products[0] += static_cast<double>(dyr.f32()[i]) * out[static_cast<size_t>(i)];
            products[1] += static_cast<double>(xr.f32()[i]) * dx[static_cast<size_t>(i)];
          }
          const Tensor sums = Tensor::of(products, {2});
          rank.mesh.tp().all_reduce(sums, sums, ReduceOp::sum).wait();
          EXPECT_NEAR(products[0], products[1], 1e-4 * std::abs(products[0]));

          // dW of the column layer saw all rows, the row layer's bias this rank's alone.
          const Tensor dw = rank.params.grad(0), db = rank.params.grad(3);
          for (int64_t o = 0; o < width; ++o)
            for (int64_t i = 0; i < n; ++i) {
              double sum = 0;
              for (int64_t k = 0; k < t; ++k)
                sum += static_cast<double>(d_between[static_cast<size_t>(k * width + o)]) *
                       x[static_cast<size_t>(k * n + i)];
              EXPECT_NEAR(dw.f32()[o * n + i], sum, 1e-3);
            }
          for (int64_t o = 0; o < n; ++o) {
            double sum = 0;
            for (int64_t k = 0; k < rows; ++k) sum += dyr.f32()[k * n + o];
            EXPECT_NEAR(db.f32()[o], sum, 1e-5);
          }
        },
        /*sequence_parallel=*/true);
}

TEST(ColumnLinear, AnIdleBiasKeepsTheGradientZero) {
  on_ranks(2, [&](Rank& rank) {
    ColumnLinear layer({{"q", 4}, {"k", 4, 0, true}, {"v", 4}}, 3, true, 1.0F);
    layer.declare(rank.params);
    rank.params.commit();
    rank.params.initialise(1);
    Pass pass = rank.pass();
    const auto x = random("x", 2 * 3), dy = random("dy", 2 * 6);
    layer.backward_weight(pass, Tensor::of(x.data(), {2, 3}), Tensor::of(dy.data(), {2, 6}));
    const float* grad = rank.params.grad(1).f32();  // [2 of q | 2 of k | 2 of v]
    for (int i : {0, 1, 4, 5}) EXPECT_NE(grad[i], 0.0F);
    for (int i : {2, 3}) EXPECT_EQ(grad[i], 0.0F);
  });
}

// Ids on both sides of every shard's boundary, on vocabularies that no tensor degree divides.
TEST(VocabularyEmbedding, EveryRowIsFoundOnEveryTensorDegree) {
  constexpr int64_t h = 3;
  for (int64_t vocabulary : {5, 37, 48})
    for (int tensor : {1, 2, 3, 4, 8}) {
      const Matrix table = whole_parameter("table", vocabulary * h, 1.0F, 5);
      std::vector<int32_t> ids(static_cast<size_t>(vocabulary));
      for (int64_t v = 0; v < vocabulary; ++v) ids[static_cast<size_t>(v)] = static_cast<int32_t>(v);
      on_ranks(tensor, [&](Rank& rank) {
        VocabularyEmbedding layer("table", vocabulary, h, 1.0F);
        layer.declare(rank.params);
        rank.params.commit();
        rank.params.initialise(5);
        Pass pass = rank.pass();
        std::vector<float> y(static_cast<size_t>(vocabulary * h));
        pass.ids = Tensor::of(ids.data(), {vocabulary});
        layer.forward(pass, Tensor::of(y.data(), {vocabulary, h}));
        for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], static_cast<float>(table[i])) << i;
      });
    }
}

// Loss and gradients against the whole softmax, with targets at every shard boundary, in one chunk of tokens
// or several; padded rows take no part.
TEST(VocabularyHead, LossAndGradientAreThoseOfTheWholeSoftmax) {
  constexpr int64_t h = 6, t = 150;
  for (int64_t vocabulary : {5, 37, 48})
    for (int tensor : {1, 2, 3, 4, 8}) {
      const Matrix w = whole_parameter("head", vocabulary * h, 1.0F, 6);
      const auto x = random("x", t * h);
      std::vector<int32_t> targets(t);
      for (int64_t i = 0; i < t; ++i) targets[static_cast<size_t>(i)] = static_cast<int32_t>(i % vocabulary);
      const Matrix logits = multiply(x, w, t, vocabulary, h);
      double loss = 0;
      Matrix dx(static_cast<size_t>(t * h)), dw(w.size());
      for (int64_t i = 0; i < t; ++i) {
        const double* z = logits.data() + i * vocabulary;
        double sum = 0;
        for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(z[v]);
        loss += std::log(sum) - z[targets[static_cast<size_t>(i)]];
        for (int64_t v = 0; v < vocabulary; ++v) {
          const double dz = (std::exp(z[v]) / sum - (v == targets[static_cast<size_t>(i)])) / t;
          for (int64_t k = 0; k < h; ++k) {
            dx[static_cast<size_t>(i * h + k)] += dz * w[static_cast<size_t>(v * h + k)];
            dw[static_cast<size_t>(v * h + k)] += dz * x[static_cast<size_t>(i * h + k)];
          }
        }
      }
      const bool chunks = vocabulary == 48;
      on_ranks(tensor, [&](Rank& rank) {
        VocabularyHead layer("head", vocabulary, h, false, 1.0F, chunks ? 1 : VocabularyHead::usual_chunk);
        layer.declare(rank.params);
        rank.params.commit();
        rank.params.initialise(6);
        EXPECT_EQ(layer.chunk_tokens(t), chunks ? 64 : t);  // of 64, 64 and 22
        Pass pass = rank.pass();
        ExactSum sum;
        std::vector<float> back(t * h);
        pass.targets = Tensor::of(targets.data(), {t});
        pass.loss = &sum;
        pass.loss_scale = 1.0F / t;
        if (vocabulary == 5) {
          layer.loss(pass, Tensor::of(x.data(), {t, h}), Tensor::of(back.data(), {t, h}));
        } else {
          back = x;  // the gradient where x is
          layer.loss(pass, Tensor::of(back.data(), {t, h}), Tensor::of(back.data(), {t, h}));
        }
        EXPECT_NEAR(sum.value() / loss, 1.0, 1e-6) << vocabulary << " on " << tensor;
        expect_near(back.data(), dx, "dx");
        const ParamStore::Entry& entry = rank.params.entries()[0];
        const auto first = dw.begin() + entry.box.offset[0] * h;
        expect_near(rank.params.grads().f32() + entry.offset, {first, first + entry.box.numel()}, "dW");
      });
    }
}

}  // namespace
}  // namespace triax
