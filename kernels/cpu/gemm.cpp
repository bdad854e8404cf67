#include <memory>
#include <new>

#include "core/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_cut.h"

// Why not a BLAS: the rows of a product must not depend on which rows are computed with them. oneDNN 2.6 and
// OpenBLAS 0.3.21 choose their kernel, and with it the order of a sum, by the number of rows: of the shapes
// of a GPT-2, none gave the same bits for a subset of its rows. This one is as fast on the processors we
// measured
// (`triax bench kernels`).

namespace triax::cpu {

bool has_avx512_bf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

const GemmCode& gemm_code(DType operands) {
  if (operands == DType::bf16 && has_avx512_bf16()) return gemm_avx512_bf16;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    return gemm_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return gemm_avx2;
#endif
  return gemm_generic;
}

GemmPieces::GemmPieces(int64_t k, int pair) : count(pieces_of(k, gemm_max_depth * pair)) {
  const int64_t units = ((k + count - 1) / count + pair - 1) / pair;
  depth = units * pair;
}

void gemm_check(bool small, const GemmTile& tile) {
  check(small, "a GEMM's tile of {} x {} is larger than its memory", tile.rows, tile.columns);
}

float* gemm_memory(int which) {
  // Not on the stack, of which a thread may have two megabytes.
  struct Free {
    void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<float[], Free> memory[2];
  if (!memory[which])
    memory[which].reset(
        static_cast<float*>(::operator new[](gemm_memory_floats * sizeof(float), std::align_val_t{64})));
  return memory[which].get();
}

void gemm_by(Device& device, const Gemm& op, const GemmCode& code) {
  check(op.beta == 0 || op.beta == 1, "a GEMM's beta is {}; it can be 0 (write) or 1 (accumulate)", op.beta);
  check(op.a.dtype() == op.b.dtype(), "a GEMM of {} and {}: A and B must have one type",
        name_of(op.a.dtype()), name_of(op.b.dtype()));
  check(op.beta == 0 || op.c.dtype() == DType::f32, "a GEMM can't accumulate in {}, only in f32",
        name_of(op.c.dtype()));
  if (op.m <= 0 || op.n <= 0) return;
  const GemmCut cut = gemm_cut(op, code.pair, device.threads().size());
  device.threads().run(cut.tiles(), [&](int64_t i) { code.tile(op, cut.tile(i)); });
}

void gemm(Device& device, const Gemm& op) {
  gemm_by(device, op, gemm_code(op.a.dtype()));
}

int64_t product_depth(DType operands, int64_t k) {
  return GemmPieces(k, gemm_code(operands).pair).depth;
}

}  // namespace triax::cpu
