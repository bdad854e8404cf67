#include "kernels/cpu/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")  // up to the end of the file
#include "kernels/cpu/gemm_avx512.h"

namespace triax::cpu {

void gemm_tile_avx512(const Gemm& op, const GemmTile& tile) {
  gemm_tile<Avx512>(op, tile);
}

}  // namespace triax::cpu

#else

namespace triax::cpu {
void gemm_tile_avx512(const Gemm& op, const GemmTile& tile) {
  gemm_tile_generic(op, tile);
}
}  // namespace triax::cpu

#endif
