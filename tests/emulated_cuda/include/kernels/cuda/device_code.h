#pragma once

#include <cuda_runtime.h>

#include "streams.h"

#include <deque>

#include "core/bf16.h"

namespace triax::cuda {

// In the place of kernels/cuda/device_code.h, whose comments are the contract: the same functions for a
// compiler of C++. What asks for a whole warp here is an exchange between its lanes, written down from the
// PTX manual's tables alone.

template <class... P, class... A>
void enqueue(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
             cudaStream_t stream, A&&... args) {
  if (emulated_cuda::check_launch(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes) !=
      cudaSuccess)
    return;
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  };
  emulated_cuda::enqueue(stream, [name, grid, block, shared_bytes,
                                 call = Call{kernel, {static_cast<P>(args)...}}]() mutable {
    emulated_cuda::run_grid(
        name, grid, block, shared_bytes,
        [](void* c) { std::apply(static_cast<Call*>(c)->kernel, static_cast<Call*>(c)->arguments); }, &call);
    emulated_cuda::ran(name);
  });
}

inline unsigned char* dynamic_shared() {
  return emulated_cuda::t_block.shared;
}

inline uint32_t pack_bf16(float low, float high) {
  return uint32_t{round_bf16(low).bits} | uint32_t{round_bf16(high).bits} << 16;
}

inline float exp2_fast(float x) {
  const float y = std::exp2(x);
  return y < 1.17549435e-38f ? 0 : y;
}

namespace emulation {

inline float half_of(uint32_t pair, int which) {
  return value_of(bf16{static_cast<uint16_t>(which ? pair >> 16 : pair)});
}

struct MmaIn {
  uint32_t a[4], b[2];
  float c[4];
};

/// All lanes' fragments to matrices, the product, and C back into the first 16 bytes of the slots.
inline void multiply(emulated_cuda::Slot* slots) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto in = slots[lane].as<MmaIn>();
    const int group = lane >> 2, in_group = lane & 3;
    for (int i = 0; i < 8; ++i) {  // a0..a7 of the manual: pairs in registers 0..3
      const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
      const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      a[row][column] = half_of(in.a[i / 2], i & 1);
    }
    for (int i = 0; i < 4; ++i)
      b[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = half_of(in.b[i / 2], i & 1);
    for (int i = 0; i < 4; ++i) c[i < 2 ? group : group + 8][in_group * 2 + (i & 1)] = in.c[i];
  }
  for (int m = 0; m < 16; ++m) {
    float sum[8] = {};
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) sum[n] += a[m][k] * b[k][n];
    for (int n = 0; n < 8; ++n) c[m][n] += sum[n];
  }
  for (int lane = 0; lane < 32; ++lane) {
    float out[4];
    for (int i = 0; i < 4; ++i) out[i] = c[i < 2 ? lane >> 2 : (lane >> 2) + 8][(lane & 3) * 2 + (i & 1)];
    std::memcpy(slots[lane].bytes, out, sizeof out);
  }
}

inline const unsigned char* row_of(const emulated_cuda::Slot* slots, int matrix, int row) {
  return slots[matrix * 8 + row].as<const unsigned char*>();
}
inline void check_shared(const void* row, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(row),
             first = reinterpret_cast<uintptr_t>(emulated_cuda::t_block.shared);
  if (at % 16 != 0) emulated_cuda::fail_thread("an address in shared memory is not aligned to 16 bytes");
  if (at < first || at + bytes > first + emulated_cuda::t_block.shared_bytes)
    emulated_cuda::fail_thread("an address is not in the dynamic shared memory");
}

/// Copies of this thread that have begun and are not waited for: done as late as possible, so that what is
/// read too early is not there yet.
struct Copy {
  void* to;
  const void* from;
  bool valid;
};
struct Copies {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};

}  // namespace emulation

inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                int line = __builtin_LINE()) {
  const emulation::MmaIn in{{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
  const auto* slots = emulated_cuda::exchange(0xffffffffu, in, line, emulation::multiply);
  std::memcpy(c, slots[emulated_cuda::lane()].bytes, sizeof c);
}

inline void load_matrices(uint32_t (&r)[4], const void* row, int line = __builtin_LINE()) {
  emulation::check_shared(row, 16);
  const int lane = static_cast<int>(emulated_cuda::lane());
  const auto* slots = emulated_cuda::exchange(0xffffffffu, row, line);
  for (int k = 0; k < 4; ++k) std::memcpy(&r[k], emulation::row_of(slots, k, lane / 4) + 4 * (lane % 4), 4);
}

inline void load_matrices_transposed(uint32_t (&r)[4], const void* row, int line = __builtin_LINE()) {
  emulation::check_shared(row, 16);
  const int lane = static_cast<int>(emulated_cuda::lane());
  const auto* slots = emulated_cuda::exchange(0xffffffffu, row, line);
  for (int k = 0; k < 4; ++k) {
    uint16_t pair[2];
    for (int i = 0; i < 2; ++i)
      std::memcpy(&pair[i], emulation::row_of(slots, k, 2 * (lane % 4) + i) + 2 * (lane / 4), 2);
    r[k] = uint32_t{pair[0]} | uint32_t{pair[1]} << 16;
  }
}

void copy_async(void* to_shared, const void* from, bool valid);
void commit_copies();
void wait_copies_but(int left);
template <int Left>
void wait_copies() {
  wait_copies_but(Left);
}

}  // namespace triax::cuda
