#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_cut.h"

namespace triax {
namespace {

constexpr float kCanary = 123.5f;

/// Operands of one product with gaps between rows, at any distance from an aligned address.
struct Problem {
  Gemm op;
  std::vector<float> a, b, c, bias;

  Problem(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float beta, bool with_bias, int64_t gap = 3,
          int64_t shift = 0, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const int64_t lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
    a.assign(static_cast<size_t>((ta ? k : m) * lda + shift), 0);
    b.assign(static_cast<size_t>((tb ? n : k) * ldb + shift), 0);
    c.assign(static_cast<size_t>(m * ldc + shift), kCanary);
    bias.assign(static_cast<size_t>(n + shift), 0);
    // Drawn by logical index, so that equal problems in other places hold equal values.
    for (int64_t i = 0; i < m; ++i)
      for (int64_t p = 0; p < k; ++p) a[shift + (ta ? p * lda + i : i * lda + p)] = normal(random);
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j) b[shift + (tb ? j * ldb + p : p * ldb + j)] = normal(random);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        c[shift + i * ldc + j] =
            beta == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(normal(random));
    for (int64_t j = 0; j < n; ++j) bias[shift + j] = normal(random);
    op = {.transpose_a = ta,
          .transpose_b = tb,
          .m = m,
          .n = n,
          .k = k,
          .a = a.data() + shift,
          .lda = lda,
          .b = b.data() + shift,
          .ldb = ldb,
          .c = c.data() + shift,
          .ldc = ldc,
          .beta = beta,
          .bias = with_bias ? bias.data() + shift : nullptr};
  }

  float a_at(int64_t i, int64_t p) const {
    const float* a = op.a.as<float>();
    return op.transpose_a ? a[p * op.lda + i] : a[i * op.lda + p];
  }
  float b_at(int64_t p, int64_t j) const {
    const float* b = op.b.as<float>();
    return op.transpose_b ? b[j * op.ldb + p] : b[p * op.ldb + j];
  }

  /// C as plain loops in double give it, and the sum of the addends' sizes (the scale of rounding).
  std::pair<double, double> expected(int64_t i, int64_t j) const {
    double sum = op.beta != 0 ? op.c.as<float>()[i * op.ldc + j] : 0, size = std::abs(sum);
    for (int64_t p = 0; p < op.k; ++p) {
      const double product = static_cast<double>(a_at(i, p)) * b_at(p, j);
      sum += product;
      size += std::abs(product);
    }
    if (op.bias) sum += op.bias.as<float>()[j], size += std::abs(op.bias.as<float>()[j]);
    return {sum, size};
  }

  /// The elements of C, without the gaps.
  std::vector<float> result() const {
    std::vector<float> out;
    for (int64_t i = 0; i < op.m; ++i)
      out.insert(out.end(), op.c.as<float>() + i * op.ldc, op.c.as<float>() + i * op.ldc + op.n);
    return out;
  }
};

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

struct Named {
  const char* name;
  const cpu::GemmCode* code;
};

/// The instruction sets that this processor has.
std::vector<Named> targets() {
  std::vector<Named> out{{"generic", &cpu::gemm_generic}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    out.push_back({"avx2", &cpu::gemm_avx2});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    out.push_back({"avx512", &cpu::gemm_avx512});
#endif
  return out;
}

void expect_close(const Problem& before, const Problem& after, const std::string& what) {
  const double unit = std::ldexp(1.0, -24);
  for (int64_t i = 0; i < before.op.m; ++i) {
    for (int64_t j = 0; j < before.op.n; ++j) {
      const auto [value, size] = before.expected(i, j);
      const float got = after.op.c.as<float>()[i * after.op.ldc + j];
      // Random signs: errors grow like the root of the number of sums.
      const double bound = unit * size * std::sqrt(static_cast<double>(before.op.k) + 4) + 1e-30;
      ASSERT_NEAR(got, value, bound) << what << " at " << i << ", " << j;
    }
    for (int64_t j = before.op.n; j < before.op.ldc; ++j)
      ASSERT_EQ(after.op.c.as<float>()[i * after.op.ldc + j], kCanary) << what << " wrote past row " << i;
  }
}

TEST(Gemm, MatchesPlainLoopsForEveryInstructionSet) {
  const std::vector<std::array<int64_t, 3>> shapes{{1, 1, 1},   {5, 3, 7},     {6, 16, 8},    {14, 32, 16},
                                                   {13, 33, 9}, {29, 47, 385}, {100, 65, 33}, {3, 130, 800}};
  for (const Named& target : targets())
    for (const auto& [m, n, k] : shapes)
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          for (const float beta : {0.0f, 1.0f})
            for (const bool bias : {false, true}) {
              const Problem before(ta, tb, m, n, k, beta, bias);
              Problem after = before;
              after.op.c = after.c.data();
              target.code->tile(after.op, {0, m, 0, n});
              expect_close(before, after,
                           fmt::format("{} {}{} {}x{}x{} beta {} bias {}", target.name, ta ? 'T' : 'N',
                                       tb ? 'T' : 'N', m, n, k, beta, bias));
              if (HasFatalFailure()) return;
            }
}

TEST(Gemm, MatchesPlainLoopsOnThreads) {
  auto device = make_cpu_device(2);
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const Problem before(ta, tb, 190, 450, 70, 1.0f, true);
      Problem after = before;
      after.op.c = after.c.data();
      cpu::gemm(*device, after.op);
      expect_close(before, after, fmt::format("{}{}", ta, tb));
    }
}

TEST(Gemm, BitsDependNeitherOnThreadsNorOnPlace) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      std::vector<float> first;
      for (const int threads : {1, 2, 3})
        for (const int64_t shift : {0, 1, 5})
          for (const int64_t gap : {0, 6}) {
            auto device = make_cpu_device(threads);
            Problem problem(ta, tb, 201, 213, 400, ta ? 1.0f : 0.0f, !ta, gap, shift);
            cpu::gemm(*device, problem.op);
            const auto result = problem.result();
            if (first.empty()) first = result;
            ASSERT_TRUE(same_bits(first, result))
                << threads << " threads, shift " << shift << ", gap " << gap;
          }
    }
}

TEST(Gemm, RowsAndColumnsDoNotDependOnTheirCompany) {
  auto device = make_cpu_device(2);
  for (const Named& target : targets())
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const Problem before(ta, tb, 103, 97, 450, 1.0f, true);
        Problem whole = before;
        whole.op.c = whole.c.data();
        target.code->tile(whole.op, {0, 103, 0, 97});
        for (const auto& [row, rows, column, columns] : std::vector<std::array<int64_t, 4>>{{0, 1, 0, 97},
                                                                                            {1, 1, 0, 97},
                                                                                            {102, 1, 0, 97},
                                                                                            {5, 17, 0, 97},
                                                                                            {37, 64, 0, 97},
                                                                                            {0, 103, 1, 1},
                                                                                            {0, 103, 16, 33},
                                                                                            {7, 20, 90, 7}}) {
          Problem part = before;
          Gemm op = part.op;
          op.m = rows, op.n = columns;
          op.a = op.a.as<float>() + (ta ? row : row * op.lda);
          op.b = op.b.as<float>() + (tb ? column * op.ldb : column);
          op.c = part.c.data() + row * op.ldc + column;
          op.bias = op.bias.as<float>() + column;
          target.code->tile(op, {0, rows, 0, columns});
          for (int64_t i = row; i < row + rows; ++i)
            ASSERT_EQ(std::memcmp(part.c.data() + i * op.ldc + column, whole.c.data() + i * op.ldc + column,
                                  static_cast<size_t>(columns) * sizeof(float)),
                      0)
                << target.name << " row " << i << " of " << row << " + " << rows;
        }
      }
}

// A panel of op(B) is packed in steps while the one before is multiplied: as many steps as there are rows
// for. Rows that lie 4096 bytes apart, of A or of C, are no other.
TEST(Gemm, FewRowsHaveTheBitsOfMany) {
  for (const Named& target : targets())
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const int64_t k : {7, 100, 1700}) {
          std::vector<float> first;
          for (const int64_t gap : {int64_t{3}, 2048 - k, int64_t{1024 - 97}}) {
            const Problem before(ta, tb, 300, 97, k, 1.0f, true, gap);
            Problem many = before;
            many.op.c = many.c.data();
            target.code->tile(many.op, {0, 300, 0, 97});
            for (const int64_t rows : {1, 50, 100}) {
              Problem few = before;
              few.op.c = few.c.data();
              for (int64_t row = 0; row < 300; row += rows) target.code->tile(few.op, {row, rows, 0, 97});
              ASSERT_TRUE(same_bits(few.c, many.c)) << fmt::format(
                  "{} {}{} k {} gap {}, {} rows", target.name, ta ? 'T' : 'N', tb ? 'T' : 'N', k, gap, rows);
            }
            if (first.empty()) first = many.result();
            ASSERT_TRUE(same_bits(first, many.result())) << target.name << " k " << k << " gap " << gap;
          }
        }
}

// Threads cut a product into other tiles than one does.
TEST(Gemm, ThreadsHaveTheBitsOfOne) {
  struct Size {
    int64_t m, n, k, gap;
  };
  for (const Named& target : targets())
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const Size& z : {Size{90, 1000, 700, 3},
                              {87, 20, 30000, 0},
                              {86, 40, 1024, 0},
                              {1500, 40, 300, 0},
                              {3, 5, 9, 1}}) {
          const float beta = ta ? 1.0f : 0.0f;
          const Problem before(ta, tb, z.m, z.n, z.k, beta, !ta, z.gap);
          Problem alone = before;
          alone.op.c = alone.c.data();
          for (int64_t i = 0; i < z.m; i += 300)
            target.code->tile(alone.op, {i, std::min<int64_t>(300, z.m - i), 0, z.n});
          for (const int threads : {1, 2, 3, 20}) {
            auto device = make_cpu_device(threads);
            Problem together = before;
            together.op.c = together.c.data();
            cpu::gemm_by(*device, together.op, *target.code);
            ASSERT_TRUE(same_bits(together.c, alone.c))
                << target.name << (ta ? " T" : " N") << (tb ? "T " : "N ") << z.m << " x " << z.n << " x "
                << z.k << " on " << threads << " threads";
          }
        }
}

// A large weight's gradient goes past the caches where its lines are whole: the first two below. The others
// are as large, and are not overwritten, not in one piece or not on whole lines.
TEST(Gemm, ALargeGradientHasTheSameBitsPastTheCaches) {
  struct Case {
    int64_t k, gap, shift;
    float beta;
    bool bias;
  };
  const int64_t m = 530, n = 520, line = 16;
  ASSERT_GE(m * n, cpu::gemm_least_streamed);
  for (const Named& target : targets())
    for (const bool tb : {false, true})
      for (const Case& z : {Case{70, 8, 0, 0, false},
                            {0, 24, 0, 0, false},
                            {70, 8, 0, 1, false},
                            {70, 8, 0, 0, true},
                            {1700, 8, 0, 0, false},
                            {70, 8, 1, 0, false},
                            {70, 3, 0, 0, false}}) {
        const Problem before(true, tb, m, n, z.k, z.beta, z.bias, z.gap);
        Problem through = before;
        through.op.c = through.c.data();
        for (int64_t i = 0; i < m; i += 106)
          target.code->tile(through.op, {i, 106, 0, 260}), target.code->tile(through.op, {i, 106, 260, 260});
        for (const int threads : {1, 2, 5}) {
          std::vector<float> memory(before.c.size() + 2 * line, kCanary);
          const auto at = reinterpret_cast<uintptr_t>(memory.data()) / sizeof(float) % line;
          const auto first = static_cast<int64_t>((line - at) % line) + z.shift;
          std::copy(before.c.begin(), before.c.end(), memory.begin() + first);
          Problem past = before;
          past.op.c = memory.data() + first;
          auto device = make_cpu_device(threads);
          cpu::gemm_by(*device, past.op, *target.code);
          ASSERT_EQ(std::memcmp(memory.data() + first, through.c.data(), sizeof(float) * before.c.size()), 0)
              << target.name << (tb ? " TT" : " TN") << " k " << z.k << " gap " << z.gap << " shift "
              << z.shift << " on " << threads;
          for (int64_t i = 0; i < static_cast<int64_t>(memory.size()); ++i)
            if (i < first || i >= first + static_cast<int64_t>(before.c.size())) {
              ASSERT_EQ(memory[static_cast<size_t>(i)], kCanary) << "wrote beside C";
            }
        }
      }
}

// What Kernels::product_depth promises: a weight's gradient from pieces of tokens has the bits of one
// product.
TEST(Gemm, PiecesOfItsDepthHaveTheBitsOfAll) {
  const int64_t m = 70, n = 130;
  auto device = make_cpu_device(2);
  const Kernels& kernels = cpu_kernels();
  for (const int64_t k : {1, 768, 769, 1537, 2048, 3072})
    for (const float beta : {0.0f, 1.0f}) {
      const Problem before(true, false, m, n, k, beta, false, 1);
      std::vector<bf16> half_a(before.a.size()), half_b(before.b.size());
      std::transform(before.a.begin(), before.a.end(), half_a.begin(), round_bf16);
      std::transform(before.b.begin(), before.b.end(), half_b.begin(), round_bf16);
      for (const DType type : {DType::f32, DType::bf16}) {
        Problem whole = before, cut = before;
        for (Problem* p : {&whole, &cut}) {
          p->op.c = p->c.data();
          if (type == DType::bf16)
            p->op.a = half_a.data() + (before.op.a.as<float>() - before.a.data()),
            p->op.b = half_b.data() + (before.op.b.as<float>() - before.b.data());
        }
        kernels.gemm(*device, whole.op);
        const int64_t depth = kernels.product_depth(type, k);
        ASSERT_TRUE(depth > 0 && (k <= (type == DType::bf16 ? 1536 : 768) || depth < k));
        const auto past = [&](const ConstElements& from, int64_t elements) -> ConstElements {
          if (type == DType::bf16) return from.as<bf16>() + elements;
          return from.as<float>() + elements;
        };
        for (int64_t first = 0; first < k; first += depth) {
          Gemm piece = cut.op;
          piece.k = std::min(depth, k - first);
          piece.a = past(cut.op.a, first * cut.op.lda);
          piece.b = past(cut.op.b, first * cut.op.ldb);
          if (first > 0) piece.beta = 1;
          kernels.gemm(*device, piece);
        }
        EXPECT_TRUE(same_bits(cut.c, whole.c)) << name_of(type) << ", k " << k << ", beta " << beta;
      }
    }
}

TEST(Gemm, Avx2AndAvx512GiveTheSameBits) {
  const auto all = targets();
  if (all.size() < 3) GTEST_SKIP() << "this processor has no AVX-512";
  Problem x(true, true, 61, 77, 900, 1.0f, true), y(true, true, 61, 77, 900, 1.0f, true);
  all[1].code->tile(x.op, {0, 61, 0, 77});
  all[2].code->tile(y.op, {0, 61, 0, 77});
  EXPECT_TRUE(same_bits(x.result(), y.result()));
}

TEST(Gemm, EmptyDepthWritesTheBiasOrKeepsTheSum) {
  auto device = make_cpu_device(1);
  Problem write(false, true, 3, 20, 0, 0.0f, true), keep(false, true, 3, 20, 0, 1.0f, false);
  const auto before = keep.result();
  cpu::gemm(*device, write.op);
  cpu::gemm(*device, keep.op);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 20; ++j) EXPECT_EQ(write.op.c.as<float>()[i * write.op.ldc + j], write.bias[j]);
  EXPECT_TRUE(same_bits(before, keep.result()));
  auto two = make_cpu_device(2);
  Problem copied(true, false, 100, 100, 0, 0.0f, true);
  cpu::gemm(*two, copied.op);
  for (int64_t j = 0; j < 100; ++j)
    EXPECT_EQ(copied.op.c.as<float>()[99 * copied.op.ldc + j], copied.bias[j]);
  Problem none(false, true, 0, 20, 4, 0.0f, true);
  cpu::gemm(*device, none.op);  // no rows: nothing is touched
}

// On machines of any size, which the one that runs this need not be.
TEST(GemmCut, IsEvenAndNotTooFine) {
  for (const int threads : {1, 2, 3, 4, 8, 16, 64, 128})
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                     {256, 768, 768},
                                                                     {256, 3072, 768},
                                                                     {1024, 768, 3072},
                                                                     {2048, 384, 1536},
                                                                     {50257, 768, 256},
                                                                     {512, 50257, 768},
                                                                     {768, 3072, 1024},
                                                                     {3, 5000, 700},
                                                                     {8192, 64, 64},
                                                                     {100, 90, 100000}})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          for (const DType type : {DType::f32, DType::bf16}) {
            Gemm op{.transpose_a = ta, .transpose_b = tb, .m = m, .n = n, .k = k};
            op.lda = ta ? m : k;
            if (type == DType::bf16)
              op.a = static_cast<const bf16*>(nullptr), op.c = static_cast<bf16*>(nullptr);
            else
              op.a = static_cast<const float*>(nullptr), op.c = static_cast<float*>(nullptr);
            const int pair = type == DType::bf16 ? 2 : 1;
            const cpu::GemmCut cut = cpu::gemm_cut(op, pair, threads);
            const std::string what =
                fmt::format("{} x {} x {} {}{} on {} threads: {} x {} tiles", m, n, k, ta ? 'T' : 'N',
                            tb ? 'T' : 'N', threads, cut.down, cut.across);
            const int64_t depth = cpu::GemmPieces(k, pair).depth / pair;
            int64_t area = 0, largest = 0;
            for (int64_t i = 0; i < cut.tiles(); ++i) {
              const cpu::GemmTile tile = cut.tile(i);
              ASSERT_GT(tile.rows, 0) << what;
              ASSERT_GT(tile.columns, 0) << what;
              if (cpu::copies_a(op, pair)) {
                ASSERT_LE(tile.rows * depth, cpu::gemm_max_copied) << what;
              }
              if (type == DType::bf16) {
                ASSERT_LE(tile.rows * tile.columns, cpu::gemm_max_rounded) << what;
                ASSERT_LE(tile.columns, cpu::gemm_max_columns) << what;
              }
              area += tile.rows * tile.columns;
              largest = std::max(largest, tile.rows * tile.columns);
            }
            ASSERT_EQ(area, m * n) << what;
            const int64_t work = m * n / threads, share = cpu::pieces_of(cut.tiles(), threads) * largest;
            // Where every thread can have 96 x 96: none has a sixth more than its part, and no tile is
            // smaller than 48 rows and 2,048 elements.
            if (work < 96 * 96 || m < 96 || n < 96) continue;
            EXPECT_LE(6 * share, 7 * work) << what;
            EXPECT_GE(cut.tile(0).rows, 48) << what;
            EXPECT_GE(largest, 2048) << what;
          }
}

TEST(GemmCut, TilesThatAreTooLargeAreRefused) {
  Problem problem(true, false, 400, 8, 768, 0.0f, false);
  EXPECT_THROW(cpu::gemm_generic.tile(problem.op, {0, 400, 0, 8}), Error);
}

TEST(Gemm, RefusesOtherBeta) {
  auto device = make_cpu_device(1);
  Problem problem(false, true, 2, 2, 2, 0.5f, false);
  EXPECT_THROW(cpu::gemm(*device, problem.op), Error);
}

}  // namespace
}  // namespace triax
