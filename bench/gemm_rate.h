#pragma once

#include <ostream>

#include "core/device.h"
#include "core/dtype.h"

namespace triax {

/// FLOP/s that this machine reaches in large matrix products of `dtype` on the device's threads: the best of
/// a few shapes, of our own GEMM and, in fp32 and where it is installed, of oneDNN's (opened for this call
/// only, so that a roof is not just as low as our own ceiling). Runs for about `seconds`; takes 100 MB.
double measured_gemm_rate(Device& device, double seconds, DType dtype = DType::f32);

/// `triax bench rates`: the roofs alone, as a line of JSON: what bench/compare.py puts between its turns.
///   gemm_fp32, gemm_bf16          FLOP/s of the quickest single product, of a few milliseconds
///   held_fp32, held_bf16          the highest mean of `seconds`, of the three quickest products, each of
///   which
///                                 is done over and over for so long: what a step of seconds can hope for
///                                 where the host of a virtual machine has other guests
///   products_fp32, products_bf16  whose products were tried, in words
///   triad, stream                 bytes/s of MemoryRates::triad and ::fastest()
/// Takes about nine times `seconds`.
void bench_rates(std::ostream& out, int threads, double seconds);

}  // namespace triax
