#pragma once

#include "comm/device_link.h"

namespace triax {

/// Events and reductions of CUDA devices.
DeviceLink& cuda_link();

}  // namespace triax
