#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/device.h"
#include "core/error.h"

namespace triax {

namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : pool_(threads) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }

  void* allocate(size_t bytes, std::string_view purpose) override {
    if (bytes == 0) return nullptr;
    // Anonymous pages are zero and aligned; with huge pages a first touch costs 512 times fewer faults.
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
      fail("no memory for {} ({} bytes): {}; use more ranks, a smaller micro_batch_size or recomputation",
           purpose, bytes, std::strerror(errno));
    madvise(block, bytes, MADV_HUGEPAGE);
    return block;
  }

  void deallocate(void* block, size_t bytes) override {
    if (block) munmap(block, bytes);
  }

  void* allocate_host(size_t bytes, std::string_view purpose) override { return allocate(bytes, purpose); }
  void deallocate_host(void* block, size_t bytes) override { deallocate(block, bytes); }

  void copy(void* destination, const void* source, size_t bytes) override {
    if (bytes) std::memmove(destination, source, bytes);
  }
  void copy_rows(void* destination, size_t destination_stride, const void* source, size_t source_stride,
                 size_t bytes, int64_t rows) override {
    for (int64_t r = 0; r < rows; ++r)
      copy(static_cast<char*>(destination) + static_cast<size_t>(r) * destination_stride,
           static_cast<const char*>(source) + static_cast<size_t>(r) * source_stride, bytes);
  }
  void write(void* destination, const void* source, size_t bytes) override {
    copy(destination, source, bytes);
  }
  void read(void* destination, const void* source, size_t bytes) override {
    copy(destination, source, bytes);
  }

  void fill_zero(void* destination, size_t bytes) override {
    if (bytes == 0) return;
    constexpr size_t piece = size_t{1} << 20;
    pool_.parallel_for(static_cast<int64_t>(bytes), piece, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(destination) + begin, 0, static_cast<size_t>(end - begin));
    });
  }

  void synchronize() override {}
  ThreadPool& threads() override { return pool_; }

 private:
  ThreadPool pool_;
};

}  // namespace

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::none:
      return "none";
  }
  return "?";
}

namespace {

class HostClock final : public DeviceClock {
 public:
  int mark() override {
    moments_.push_back(std::chrono::steady_clock::now());
    return static_cast<int>(moments_.size()) - 1;
  }
  double seconds(int from, int to) override {
    const auto at = [&](int mark) { return moments_.at(static_cast<size_t>(mark)); };
    return std::chrono::duration<double>(at(to) - at(from)).count();
  }
  void restart() override { moments_.clear(); }

 private:
  std::vector<std::chrono::steady_clock::time_point> moments_;
};

}  // namespace

std::unique_ptr<DeviceClock> Device::make_clock() {
  return std::make_unique<HostClock>();
}

std::unique_ptr<DeviceGraph> Device::capture(const std::function<void()>&) {
  fail("a device of kind {} records no calls", name_of(kind()));
}

std::unique_ptr<Device> make_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace triax
