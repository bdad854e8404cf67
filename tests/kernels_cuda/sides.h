#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/bf16.h"
#include "kernels/kernels.h"
#include "support/numeric.h"
#include "support/random.h"

namespace triax::test {

/// Where an operation runs: the host, or a GPU, real or emulated.
struct Side {
  Device& device;
  const Kernels& kernels;
};

/// An array in a side's memory, filled from the host.
template <class T>
class Array {
 public:
  Array(Side& side, const std::vector<T>& values) : device_(side.device), count_(values.size()) {
    data_ = static_cast<T*>(device_.allocate(bytes(), "a test"));
    if (data_) device_.write(data_, values.data(), bytes());
  }
  ~Array() { device_.deallocate(data_, bytes()); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> out(count_);
    device_.read(out.data(), data_, bytes());
    return out;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }
  Device& device_;
  size_t count_;
  T* data_;
};

/// Values as elements of T, and back.
template <class T>
std::vector<T> as(const Floats& values) {
  std::vector<T> out;
  out.reserve(values.size());
  for (const float x : values) out.push_back(rounded<T>(x));
  return out;
}
template <class T>
Floats floats(const std::vector<T>& values) {
  Floats out;
  out.reserve(values.size());
  for (const T& x : values) out.push_back(value_of(x));
  return out;
}

/// What an operation left: arrays with how close both sides must be, relative as in close_to().
struct Output {
  std::string name;
  Floats values;
  double tolerance;
};
using Outputs = std::vector<Output>;

/// Tolerances of results that are stored as T after sums in fp32.
template <class T>
constexpr double stored = sizeof(T) == 4 ? 1e-5 : 1e-2;
constexpr double in_fp32 = 1e-5;

/// The library under test: null where there is none of this kind, with the reason.
struct Gpu {
  std::unique_ptr<Device> device;
  const Kernels* kernels = nullptr;
  void (*set_order)(int, unsigned) = nullptr;  ///< the emulator's; null on a GPU
  std::string missing;
};
enum class GpuKind { emulated, real };
Gpu& gpu(GpuKind kind);

/// Runs each test on the emulated library and, where there is one, on a GPU.
class CudaKernels : public ::testing::TestWithParam<GpuKind> {
 protected:
  void SetUp() override {
    const Gpu& g = gpu(GetParam());
    if (GetParam() == GpuKind::emulated)
      ASSERT_TRUE(g.kernels) << g.missing;
    else if (!g.kernels)
      GTEST_SKIP() << g.missing;
  }

  /// body(side) on the host and on the GPU gives about the same; on the GPU the same bits when it is
  /// repeated, whatever the order in which threads and blocks run.
  template <class Body>
  void compare(const std::string& what, const Body& body) {
    const auto host = make_cpu_device(1);
    Side cpu{*host, cpu_kernels()};
    const Outputs truth = body(cpu);
    Gpu& g = gpu(GetParam());
    Side side{*g.device, *g.kernels};
    Outputs first;
    for (int order = 0; order < 3; ++order) {
      if (g.set_order) g.set_order(order, 17);
      const Outputs out = body(side);
      ASSERT_EQ(out.size(), truth.size());
      for (size_t i = 0; i < out.size(); ++i) {
        if (order == 0)
          EXPECT_TRUE(close_to(out[i].values, widen(truth[i].values), truth[i].tolerance))
              << what << ": " << out[i].name;
        else
          EXPECT_TRUE(same_bits(out[i].values, first[i].values))
              << what << ", order " << order << ": " << out[i].name;
      }
      if (order == 0) first = out;
    }
    if (g.set_order) g.set_order(0, 0);
  }

  /// For f32 and bf16: body(side, T{}).
  template <class Body>
  void compare_types(const std::string& what, const Body& body) {
    compare(what + ", f32", [&](Side& side) { return body(side, float{}); });
    compare(what + ", bf16", [&](Side& side) { return body(side, bf16{}); });
  }
};

}  // namespace triax::test
