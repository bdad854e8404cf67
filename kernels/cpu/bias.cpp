#include <cstdint>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element_type.h"
#include "kernels/cpu/multiversion.h"

namespace triax::cpu {

namespace {

template <class T>
TRIAX_INLINE void sum_columns_of(const BiasBackward& op, int64_t begin, int64_t end) {
  const T* dy = op.dy.as<T>();
  const int64_t f = op.f;
  column_sums(
      op.t, begin, end - begin,
      op.dbias, [=](int64_t t, int64_t i) __attribute__((always_inline)) { return value_of(dy[t * f + i]); });
}
TRIAX_MULTIVERSION void sum_columns(const BiasBackward& op, int64_t begin, int64_t end) {
  TRIAX_TYPED(op.dy, sum_columns_of, op, begin, end);
}

}  // namespace

void bias_backward(Device& device, const BiasBackward& op) {
  device.threads().parallel_for(op.f, column_strip,
                                [&](int64_t begin, int64_t end) { sum_columns(op, begin, end); });
}

}  // namespace triax::cpu
