#pragma once

#include <functional>

/// A stream: what it is given is done at once by whoever gives it, as long as nothing is deferred; from then
/// on by a thread of its own, in order, until all is done. The library that stands for NCCL (nccl.cpp) defers
/// its operations; that is how streams come to run beside the host.
struct CUstream_st {
  virtual ~CUstream_st() = default;
  virtual void defer(std::function<void()> work) = 0;
};
