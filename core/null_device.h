#pragma once

#include <map>
#include <string_view>
#include <tuple>

#include "core/device.h"

namespace triax {

/// A device that computes nothing and owns no memory: the same code runs on it to be planned. Addresses are
/// distinct, beyond user space (a stray access faults), and never to be dereferenced. Kernels tell it what
/// they would have done.
class NullDevice final : public Device {
 public:
  /// Calls of one kernel with the same work: its name, floating-point operations, bytes read and written.
  using Work = std::tuple<std::string_view, double, double>;

  DeviceKind kind() const override { return DeviceKind::none; }
  void* allocate(size_t bytes, std::string_view purpose) override;
  void deallocate(void*, size_t) override {}
  /// As the device's: distinct, and never followed.
  void* allocate_host(size_t bytes, std::string_view purpose) override { return allocate(bytes, purpose); }
  void deallocate_host(void*, size_t) override {}
  void copy(void*, const void*, size_t) override {}
  void copy_rows(void*, size_t, const void*, size_t, size_t, int64_t) override {}
  void write(void*, const void*, size_t) override {}
  /// Leaves the destination as it is.
  void read(void*, const void*, size_t) override {}
  void fill_zero(void*, size_t) override {}
  void synchronize() override {}
  ThreadPool& threads() override { return pool_; }

  /// `kernel` is a literal: only its address is kept.
  void note(std::string_view kernel, double flops, double bytes) { ++work_[{kernel, flops, bytes}]; }
  /// Calls of each kind of work since the last forget().
  const std::map<Work, int64_t>& work() const { return work_; }
  void forget() { work_.clear(); }

 private:
  uintptr_t next_ = uintptr_t{1} << 52;
  ThreadPool pool_{1};
  std::map<Work, int64_t> work_;
};

}  // namespace triax
