#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace triax {

/// A list of named tensors placed one behind the other, some in a second block that is lent: the layout of an
/// arena or of an activation slot, without memory.
class Placement {
 public:
  struct Entry {
    std::string name;
    Shape shape;
    DType dtype;
    size_t offset;  ///< bytes from the start of the block
    size_t bytes;
    bool lent = false;  ///< the block is the one that lend() is about
  };
  static constexpr size_t alignment =
      256;  ///< of every tensor, so that vector loads and device copies are aligned

  /// Adds a tensor and returns its index.
  int add(std::string name, Shape shape, DType dtype);
  /// Tensors that are added from now on lie in bytes [begin, end) of a second block, behind those that lie
  /// there already, as far as they fit; the others, as all before the first call, in the first.
  void lend(size_t begin, size_t end);
  const std::vector<Entry>& entries() const { return entries_; }
  /// Bytes of the whole first block, a multiple of the alignment.
  size_t bytes() const { return bytes_; }
  /// Bytes of the tensors in the second.
  size_t lent_bytes() const;
  /// The tensor `index` in a block that starts at `base`, or in the second one, at `lent`.
  Tensor at(void* base, int index, void* lent = nullptr) const;

 private:
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
  size_t lent_at_ = 0, lent_end_ = 0;  // what is free of the second block
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
