#pragma once

#include "kernels/kernels.h"

namespace triax::cuda {

// adamw.cu
void adamw(Device& device, const AdamW& op);
void decide_update(Device& device, const DecideUpdate& op);

}  // namespace triax::cuda
