#pragma once

#include "kernels/cpu/gemm_tile.h"

namespace triax::cpu {

/// The product with op(B) packed once for all threads, round by round, while they multiply the round before,
/// so that a thread's tile can be wide and op(A), where it has to be copied, is copied once or twice. False,
/// and nothing done, where each thread had better pack for itself: with op(A) read where it lies, on one
/// thread, with few rows or no depth, or where a C that is rounded has a K too long for a round. Bits are
/// those of GemmCode::tile.
bool gemm_in_rounds(Device& device, const Gemm& op, const GemmCode& code);

}  // namespace triax::cpu
