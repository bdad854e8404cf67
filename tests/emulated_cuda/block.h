#pragma once

#include <cstddef>

#include "include/cuda_runtime.h"

namespace emulated_cuda {

/// Order in which the threads of a block, and the blocks of a grid, run between barriers. On a GPU any order
/// is possible, so what a kernel leaves must not depend on it: a missing barrier shows as another result in
/// another order.
enum class Order { ascending, descending, shuffled };

/// For the launches of this thread of the host from now on.
void set_order(Order order, unsigned seed = 1);

/// Runs all threads of all blocks, one after the other, each until it waits or ends. Ends the program with a
/// message on standard error when threads can never go on: a barrier that not all threads reach, a warp's
/// exchange without some lanes of its mask, a block's threads at barriers in different lines, a write beyond
/// the shared memory that was asked for.
void run_grid(const char* name, dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(void* arguments),
              void* arguments);

}  // namespace emulated_cuda
