#include "core/null_device.h"

namespace triax {

void* NullDevice::allocate(size_t bytes, std::string_view) {
  void* block = reinterpret_cast<void*>(next_);  // NOLINT(performance-no-int-to-ptr): a name, never followed
  next_ += (bytes + 4095) / 4096 * 4096 + 4096;
  return block;
}

std::unique_ptr<Device> make_null_device() {
  return std::make_unique<NullDevice>();
}

}  // namespace triax
