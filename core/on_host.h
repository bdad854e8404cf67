#pragma once

#include <algorithm>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace triax {

/// Calls visit(const T* elements, int64_t first, int64_t count) for runs of elements, in order, that lie on
/// the host: those of the tensor itself where the device is the host, otherwise copies of some MiB. Waits for
/// what was enqueued.
template <class T, class Visit>
void visit_on_host(Device& device, const Tensor& tensor, Visit&& visit) {
  const T* elements = tensor.as<T>();
  if (device.kind() == DeviceKind::cpu) {
    if (tensor.numel()) visit(elements, int64_t{0}, tensor.numel());
    return;
  }
  constexpr int64_t block = (int64_t{4} << 20) / static_cast<int64_t>(sizeof(T));
  std::vector<T> copy(static_cast<size_t>(std::min(block, tensor.numel())));
  for (int64_t first = 0; first < tensor.numel(); first += block) {
    const int64_t count = std::min(block, tensor.numel() - first);
    device.read(copy.data(), elements + first, static_cast<size_t>(count) * sizeof(T));
    visit(static_cast<const T*>(copy.data()), first, count);
  }
}

}  // namespace triax
