#pragma once

#include <string>
#include <string_view>

#include "core/device.h"
#include "core/tensor.h"

namespace triax {

/// A stack of short-lived named tensors. Its capacity comes from a planning run: with `unbounded` nothing is
/// allocated (null device) and only the high-water mark is kept; commit(capacity) then allocates exactly
/// that.
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(&device) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Allocates the stack. On a null device any capacity is accepted and never exhausted.
  void commit(size_t capacity);

  size_t high_water() const { return high_water_; }
  size_t capacity() const { return capacity_; }

  /// Takes tensors for the time of a scope; they are given back, last frame first, when it ends.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(&scratch), mark_(scratch.used_) {}
    ~Frame() { scratch_->used_ = mark_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    /// Uninitialised memory for a tensor. Exhaustion is a fault that names the tensor.
    Tensor take(std::string_view name, Shape shape, DType dtype = DType::f32) {
      return scratch_->take(name, shape, dtype);
    }

   private:
    Scratch* scratch_;
    size_t mark_;
  };

 private:
  Tensor take(std::string_view name, Shape shape, DType dtype);

  Device* device_;
  void* base_ = nullptr;
  size_t capacity_ = 0, used_ = 0, high_water_ = 0;
};

}  // namespace triax
