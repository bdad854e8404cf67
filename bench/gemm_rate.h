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

/// `triax bench rates`: the roofs alone, as a line of JSON: what bench/compare puts between its turns. FLOP/s
/// of fp32 and bf16 products ("gemm_fp32", "gemm_bf16": the quickest of a few milliseconds; "held_fp32",
/// "held_bf16": the same product over and over for `seconds`, which is what a step of seconds can hope for
/// where the host of a virtual machine has other guests), and bytes/s of the triad ("triad"). Takes about
/// five times `seconds`.
void bench_rates(std::ostream& out, int threads, double seconds);

}  // namespace triax
