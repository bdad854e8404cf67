#include <cstdint>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

namespace {

TRIAX_MULTIVERSION void sum_columns(const BiasBackward& op, int64_t begin, int64_t end) {
  const float* dy = op.dy;
  const int64_t f = op.f;
  column_sums(
      op.t, begin, end - begin,
      op.dbias, [=](int64_t t, int64_t i) __attribute__((always_inline)) { return dy[t * f + i]; });
}

}  // namespace

void bias_backward(Device& device, const BiasBackward& op) {
  device.threads().parallel_for(op.f, column_strip,
                                [&](int64_t begin, int64_t end) { sum_columns(op, begin, end); });
}

}  // namespace triax::cpu
