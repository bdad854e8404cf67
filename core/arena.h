#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace triax {

/// A list of named tensors placed one behind the other: the layout of an arena or of an activation slot,
/// without memory.
class Placement {
 public:
  struct Entry {
    std::string name;
    Shape shape;
    DType dtype;
    size_t offset;  ///< bytes from the start of the block
    size_t bytes;
  };
  static constexpr size_t alignment =
      256;  ///< of every tensor, so that vector loads and device copies are aligned

  /// Adds a tensor and returns its index.
  int add(std::string name, Shape shape, DType dtype);
  const std::vector<Entry>& entries() const { return entries_; }
  /// Bytes of the whole block, a multiple of the alignment.
  size_t bytes() const { return bytes_; }
  /// The tensor `index` in a block that starts at `base`.
  Tensor at(void* base, int index) const;

 private:
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
};

/// Memory that is declared tensor by tensor, then committed in one block (after LLM.Q's lazy allocator). The
/// block is zero-filled and lives as long as the arena.
class Arena {
 public:
  /// Where the block lies: in the device's memory, or in that of the host that is quickest for the device.
  enum class Place { device, host };
  Arena(std::string name, Device& device, Place place = Place::device)
      : name_(std::move(name)), device_(&device), place_(place) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns the index for operator[]. A fault after commit().
  int declare(std::string name, Shape shape, DType dtype);
  /// Allocates; throws naming the arena and its largest tensors when memory is short.
  void commit();
  bool committed() const { return committed_; }
  Tensor operator[](int index) const;

  const std::string& name() const { return name_; }
  const Placement& placement() const { return placement_; }
  size_t bytes() const { return placement_.bytes(); }

 private:
  std::string name_;
  Device* device_;
  Place place_;
  Placement placement_;
  void* base_ = nullptr;
  bool committed_ = false;
};

}  // namespace triax
