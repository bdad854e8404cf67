#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda.h"

namespace triax::cuda {

namespace {

template <class T>
struct BiasColumns {
  const T* dy;
  int64_t f;

  template <int W>
  __device__ void add(int64_t t, int64_t c, float (&sums)[1][W]) const {
    float d[W];
    load(dy + t * f + c, d);
#pragma unroll
    for (int k = 0; k < W; ++k) sums[0][k] += d[k];
  }
};

}  // namespace

void bias_backward(Device& device, const BiasBackward& op) {
  with_element_type(op.dy.dtype(), [&](auto type) {
    using T = decltype(type);
    const BiasColumns<T> columns{op.dy.as<T>(), op.f};
    column_sums<vector_of<T>, 1>("bias gradient", cuda_device(device), op.t, op.f, aligned16(columns.dy),
                                 columns, op.dbias);
  });
}

}  // namespace triax::cuda
