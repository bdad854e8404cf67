#pragma once

#include "core/device.h"

namespace triax {

/// FLOP/s that this machine reaches in large fp32 matrix products on the device's threads: the best of a few
/// shapes, of our own GEMM and, where it is installed, of oneDNN's (opened for this call only, so that a roof
/// is not just as low as our own ceiling). Runs for about `seconds`; takes 100 MB.
double measured_gemm_rate(Device& device, double seconds);

/// Bytes/s of a[i] = b[i] + s * c[i] over arrays far larger than the caches, three transfers an element
/// (McCalpin's STREAM triad, which doesn't count the line that is read before it is written).
double measured_triad_bandwidth(Device& device, double seconds);

}  // namespace triax
