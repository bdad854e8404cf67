#include "core/scratch.h"

#include <algorithm>

#include "core/arena.h"

namespace triax {

Scratch::~Scratch() {
  device_->deallocate(base_, capacity_);
}

void Scratch::commit(size_t capacity) {
  check(base_ == nullptr, "the scratch stack was committed twice");
  base_ = device_->allocate(capacity, "the scratch stack");
  capacity_ = capacity;
}

Tensor Scratch::take(std::string_view name, Shape shape, DType dtype) {
  const size_t bytes = (static_cast<size_t>(shape.numel()) * size_of(dtype) + Placement::alignment - 1) /
                       Placement::alignment * Placement::alignment;
  if (device_->kind() != DeviceKind::none && used_ + bytes > capacity_)
    fail("scratch: {} ({} x {}) needs {} bytes, {} of {} are in use; the plan did not foresee it", name,
         to_string(shape), name_of(dtype), bytes, used_, capacity_);
  Tensor t(static_cast<char*>(base_) + used_, dtype, shape);
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return t;
}

}  // namespace triax
