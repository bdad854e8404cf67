#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"

namespace triax {

/// A non-owning, contiguous, row-major view of typed memory on some device. Whoever made the memory (an
/// Arena, a Scratch frame, a test's vector) keeps it alive. Copying a Tensor copies the view.
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape) : data_(data), shape_(shape), dtype_(dtype) {}
  /// View of `data` with the dtype that belongs to T.
  template <class T>
  static Tensor of(T* data, Shape shape) {
    return Tensor(const_cast<std::remove_const_t<T>*>(data), DTypeOf<std::remove_const_t<T>>::value, shape);
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t operator[](int i) const { return shape_[i]; }
  int64_t numel() const { return shape_.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }
  void* raw() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

  /// Typed pointer; a fault when T is not the tensor's element type.
  template <class T>
  T* as() const {
    check(DTypeOf<T>::value == dtype_, "a tensor of {} was read as {}", name_of(dtype_),
          name_of(DTypeOf<T>::value));
    return static_cast<T*>(data_);
  }
  float* f32() const { return as<float>(); }
  int32_t* i32() const { return as<int32_t>(); }

  /// Rows [first, first + count) of the outermost dimension.
  Tensor rows(int64_t first, int64_t count) const {
    check(shape_.rank() > 0 && first >= 0 && count >= 0 && first + count <= shape_[0],
          "rows {}..{} of a tensor of shape {}", first, first + count, to_string(shape_));
    Shape s = shape_;
    s[0] = count;
    const int64_t row = shape_[0] ? numel() / shape_[0] : 0;
    return Tensor(static_cast<char*>(data_) + static_cast<size_t>(first * row) * size_of(dtype_), dtype_, s);
  }
  /// Whether its memory has room for a tensor of this shape and type.
  bool holds(const Shape& shape, DType dtype) const {
    return shape_.rank() > 0 && bytes() >= static_cast<size_t>(shape.numel()) * size_of(dtype);
  }
  /// The same elements under another shape of equal size.
  Tensor reshape(Shape shape) const {
    check(shape.numel() == numel(), "{} elements of shape {} can't be viewed as {}", numel(),
          to_string(shape_), to_string(shape));
    return Tensor(data_, dtype_, shape);
  }

 private:
  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
};

}  // namespace triax
