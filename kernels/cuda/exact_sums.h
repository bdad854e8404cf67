#pragma once

#include "kernels/cuda/device_code.h"
#include "kernels/exact_sum.h"

namespace triax::cuda {

/// A block's part of an ExactSum, in shared memory; its threads add to it in any order, with integers. All
/// threads of the block make it, and all call add_to(); one per kernel.
class BlockExactSum {
 public:
  __device__ BlockExactSum() : words_(shared_words()) {
    for (unsigned i = threadIdx.x; i < ExactSum::word_count; i += blockDim.x) words_[i] = 0;
    __syncthreads();
  }

  /// Any thread, at most 2^30 times in a block.
  __device__ void add(double x) {
    const ExactSum::Addend a = ExactSum::addend_of(x);
#pragma unroll
    for (int i = 0; i < 3; ++i)
      if (a.value[i] != 0) atomicAdd(words_ + a.first + i, static_cast<unsigned long long>(a.value[i]));
  }

  /// Adds the block's part to a sum in global memory, as one addition.
  __device__ void add_to(ExactSum* sum) {
    __syncthreads();
    if (threadIdx.x == 0) {
      reinterpret_cast<ExactSum*>(words_)->normalise();
      words_[ExactSum::digit_count] = 1;  // how often the digits have been added to
    }
    __syncthreads();
    auto* out = reinterpret_cast<unsigned long long*>(sum);
    for (unsigned i = threadIdx.x; i < ExactSum::word_count; i += blockDim.x)
      if (words_[i] != 0) atomicAdd(out + i, words_[i]);
  }

 private:
  __device__ static unsigned long long* shared_words() {
    __shared__ unsigned long long words[ExactSum::word_count];
    return words;
  }
  unsigned long long* words_;
};

}  // namespace triax::cuda
