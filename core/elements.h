#pragma once

#include <cstddef>

#include "core/tensor.h"

namespace triax {

/// A pointer to elements whose type, f32 or bf16, is known when the program runs: what kernels take. Made
/// from a typed pointer or a Tensor (null when that is empty); does not own anything.
class ConstElements {
 public:
  ConstElements() = default;
  ConstElements(std::nullptr_t) {}
  ConstElements(const float* data) : data_(data) {}
  ConstElements(const bf16* data) : data_(data), dtype_(DType::bf16) {}
  ConstElements(const Tensor& tensor) : data_(tensor.raw()), dtype_(tensor.dtype()) {}

  DType dtype() const { return dtype_; }
  explicit operator bool() const { return data_ != nullptr; }
  /// Typed pointer, null for null; a fault when T is not the element type.
  template <class T>
  const T* as() const {
    check(!data_ || DTypeOf<T>::value == dtype_, "elements of {} were read as {}", name_of(dtype_),
          name_of(DTypeOf<T>::value));
    return static_cast<const T*>(data_);
  }

 protected:
  const void* data_ = nullptr;
  DType dtype_ = DType::f32;
};

/// The same for elements that are written.
class Elements : public ConstElements {
 public:
  Elements() = default;
  Elements(std::nullptr_t) {}
  Elements(float* data) : ConstElements(data) {}
  Elements(bf16* data) : ConstElements(data) {}
  Elements(const Tensor& tensor) : ConstElements(tensor) {}

  template <class T>
  T* as() const {
    return const_cast<T*>(ConstElements::as<T>());
  }
};

}  // namespace triax
