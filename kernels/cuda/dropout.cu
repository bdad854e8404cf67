#include "core/rng.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elements.h"

namespace triax::cuda {

namespace {

/// A RandomStream's bits, as core/rng.h draws them: block i of four words belongs to elements 4 i to 4 i + 3.
struct Bits {
  uint32_t key0, key1;
  const uint64_t* domain;

  __device__ void block(uint64_t i, uint32_t (&words)[4]) const {
    const uint64_t upper = *domain;
    words[0] = static_cast<uint32_t>(i), words[1] = static_cast<uint32_t>(i >> 32);
    words[2] = static_cast<uint32_t>(upper), words[3] = static_cast<uint32_t>(upper >> 32);
    philox(words[0], words[1], words[2], words[3], key0, key1);
  }
};

template <class T, int W>
__global__ void drop(int64_t h, int cuts, const T* x, const T* bias, T* y, Bits bits, uint64_t first,
                     uint32_t threshold, float scale) {
  visit_row<W>(h, cuts, [&](int64_t t, int64_t c) {
    float v[W], b[W];
    load(x + t * h + c, v);
    if (bias) {
      load(bias + c, b);
#pragma unroll
      for (int k = 0; k < W; ++k) v[k] += b[k];
    }
    const uint64_t index = first + static_cast<uint64_t>(t * h + c);
    uint32_t words[4];
    if constexpr (W == 1) {
      bits.block(index / 4, words);
      const unsigned k = index % 4;
      const uint32_t word = k == 0 ? words[0] : k == 1 ? words[1] : k == 2 ? words[2] : words[3];
      v[0] = word >= threshold ? v[0] * scale : 0.0f;
    } else {
#pragma unroll
      for (int k = 0; k < W; k += 4) {
        bits.block(index / 4 + k / 4, words);
#pragma unroll
        for (int j = 0; j < 4; ++j) v[k + j] = words[j] >= threshold ? v[k + j] * scale : 0.0f;
      }
    }
    store(y + t * h + c, v);
  });
}

}  // namespace

void dropout(Device& device, const Dropout& op) {
  if (op.t == 0 || op.h == 0) return;
  const Bits bits{op.key[0], op.key[1], op.domain};
  with_element_type(op.y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *x = op.x.as<T>(), *bias = op.bias.as<T>();
    T* y = op.y.as<T>();
    // A pack's elements begin a block of the generator's words.
    const bool vector = op.h % vector_of<T> == 0 && op.first % 4 == 0 && aligned16(x, bias, y);
    with_width<vector_of<T>>(vector, [&](auto width) {
      constexpr int w = decltype(width)::value;
      const RowGrid grid = row_grid<w>(op.t, op.h);
      launch("dropout", cuda_device(device), drop<T, w>, grid.grid, grid.threads, 0, op.h, grid.pieces, x,
             bias, y, bits, op.first, op.threshold, op.scale);
    });
  });
}

}  // namespace triax::cuda
