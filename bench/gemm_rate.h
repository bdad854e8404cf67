#pragma once

#include <ostream>

#include "core/device.h"
#include "core/dtype.h"

namespace triax {

/// FLOP/s that this machine reaches in large matrix products of `dtype` on the device's threads: the best of
/// a few shapes, of our own GEMM and, in fp32 and where it is installed, of oneDNN's (opened for this call
/// only, so that a roof is not just as low as our own ceiling). Runs for about `seconds`; takes 100 MB.
double measured_gemm_rate(Device& device, double seconds, DType dtype = DType::f32);

/// Bytes/s of a[i] = b[i] + s * c[i] over arrays far larger than the caches, three transfers an element
/// (McCalpin's STREAM triad, which doesn't count the line that is read before it is written).
double measured_triad_bandwidth(Device& device, double seconds);

/// `triax bench rates`: the roofs alone (fp32 and bf16 products, triad), `seconds` for each, as a line of
/// JSON
/// {"gemm_fp32": FLOP/s, "gemm_bf16": FLOP/s, "triad": bytes/s}: what bench/compare puts between its turns.
void bench_rates(std::ostream& out, int threads, double seconds);

}  // namespace triax
