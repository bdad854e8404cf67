#pragma once

#include <ostream>

#include "parallel/backend.h"

namespace triax {

/// Prints, for every kernel of the backend that a training step of GPT-2 124M uses, its time and its FLOP/s
/// or bytes/s (work_of, kernels/work.h) beside what the device reaches in large products and in copies,
/// measured in the same run: bf16, 16 sequences of 1024, or with `small` one of 64 and a small vocabulary,
/// for a device that is emulated.
void bench_device_kernels(std::ostream& out, const Backend& backend, bool small);

}  // namespace triax
