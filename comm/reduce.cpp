#include "comm/reduce.h"

#include <type_traits>

#include "core/bf16.h"

namespace triax {
namespace {

// What is added up for elements of type T.
template <class T>
struct Sum {
  using type = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
};
template <>
struct Sum<bf16> {
  using type = float;
};

template <class T, class S>
inline S widen(T v) {
  if constexpr (std::is_same_v<T, bf16>)
    return value_of(v);
  else
    return static_cast<S>(v);
}

template <class T, class S>
inline T narrow(S v) {
  if constexpr (std::is_same_v<T, bf16>)
    return round_bf16(v);
  else
    return static_cast<T>(v);
}

template <class T>
void sum(const void* const* inputs, int n, int64_t count, void* result) {
  using S = typename Sum<T>::type;
  S total[reduce_piece_elements];
  const T* first = static_cast<const T*>(inputs[0]);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) total[i] = widen<T, S>(first[i]);
  for (int r = 1; r < n; ++r) {
    const T* in = static_cast<const T*>(inputs[r]);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) total[i] = static_cast<S>(total[i] + widen<T, S>(in[i]));
  }
  T* out = static_cast<T*>(result);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = narrow<T, S>(total[i]);
}

template <class T>
void max(const void* const* inputs, int n, int64_t count, void* result) {
  using S = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  S best[reduce_piece_elements];
  const T* first = static_cast<const T*>(inputs[0]);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) best[i] = widen<T, S>(first[i]);
  for (int r = 1; r < n; ++r) {
    const T* in = static_cast<const T*>(inputs[r]);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const S v = widen<T, S>(in[i]);
      best[i] = v > best[i] || v != v ? v : best[i];
    }
  }
  T* out = static_cast<T*>(result);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) out[i] = narrow<T, S>(best[i]);
}

template <class T>
void reduce(ReduceOp op, const void* const* inputs, int n, int64_t count, void* result) {
  if (op == ReduceOp::sum)
    sum<T>(inputs, n, count, result);
  else
    max<T>(inputs, n, count, result);
}

}  // namespace

void reduce_piece(DType dtype, ReduceOp op, const void* const* inputs, int n, int64_t count, void* result) {
  switch (dtype) {
    case DType::f32:
      return reduce<float>(op, inputs, n, count, result);
    case DType::bf16:
      return reduce<bf16>(op, inputs, n, count, result);
    case DType::f64:
      return reduce<double>(op, inputs, n, count, result);
    case DType::i32:
      return reduce<int32_t>(op, inputs, n, count, result);
    case DType::i64:
      return reduce<int64_t>(op, inputs, n, count, result);
    case DType::u8:
      return reduce<uint8_t>(op, inputs, n, count, result);
  }
}

void reduce_buffers(DType dtype, ReduceOp op, const char* const* inputs, int n, int64_t count, char* result) {
  const int64_t width = static_cast<int64_t>(size_of(dtype));
  std::vector<const void*> piece(static_cast<size_t>(n));
  for (int64_t begin = 0; begin < count; begin += reduce_piece_elements) {
    for (int r = 0; r < n; ++r) piece[r] = inputs[r] + begin * width;
    reduce_piece(dtype, op, piece.data(), n, std::min(reduce_piece_elements, count - begin),
                 result + begin * width);
  }
}

}  // namespace triax
