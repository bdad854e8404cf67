#pragma once

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

namespace triax::cuda {

// The GPU's entries of the table, defined in the file of the group's name, as in cpu/cpu.h. Their contracts
// stand in kernels.h; all pointers are device memory. Each is enqueued on `stream` and done when the stream
// has reached it; a launch that the runtime refuses is a fault that names the kernel.

// adamw.cu
void adamw(cudaStream_t stream, const AdamW& op);

}  // namespace triax::cuda
