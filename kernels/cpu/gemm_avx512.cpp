#include "kernels/cpu/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")  // up to the end of the file
#include "kernels/cpu/gemm_avx512.h"

namespace triax::cpu {

const GemmCode gemm_avx512 = GemmOf<Avx512>::code;

}  // namespace triax::cpu

#else

namespace triax::cpu {
const GemmCode gemm_avx512{};
}  // namespace triax::cpu

#endif
