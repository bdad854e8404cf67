#include "block.h"

/// What tests ask of the emulator beyond the library's own door: the order (0 ascending, 1 descending, 2
/// shuffled by `seed`) in which threads and blocks run in the launches of this thread of the host from now
/// on.
extern "C" void emulated_cuda_order(int order, unsigned seed) {
  emulated_cuda::set_order(static_cast<emulated_cuda::Order>(order), seed);
}
