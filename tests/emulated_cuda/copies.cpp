// cp.async: copies that are done when they are waited for and no sooner.

#include <map>
#include <vector>

#include "kernels/cuda/device_code.h"

namespace triax::cuda {

namespace {

// Of the block that runs on this thread of the host, by thread of the block.
thread_local std::vector<emulation::Copies> t_copies;

emulation::Copies& mine() {
  const unsigned thread = emulated_cuda::t_thread->linear;
  if (t_copies.size() <= thread) t_copies.resize(thread + 1);
  return t_copies[thread];
}

}  // namespace

void copy_async(void* to_shared, const void* from, bool valid) {
  emulation::check_shared(to_shared, 16);
  if (valid && reinterpret_cast<uintptr_t>(from) % 16 != 0)
    emulated_cuda::fail_thread("the source of an asynchronous copy is not aligned to 16 bytes");
  mine().open.push_back({to_shared, from, valid});
}

void commit_copies() {
  emulation::Copies& c = mine();
  c.groups.push_back(std::move(c.open));
  c.open.clear();
}

void wait_copies_but(int left) {
  emulation::Copies& c = mine();
  while (c.groups.size() > static_cast<size_t>(left)) {
    for (const emulation::Copy& copy : c.groups.front()) {
      if (copy.valid)
        std::memcpy(copy.to, copy.from, 16);
      else
        std::memset(copy.to, 0, 16);
    }
    c.groups.pop_front();
  }
}

}  // namespace triax::cuda
