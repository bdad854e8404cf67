#include "sides.h"

#include <dlfcn.h>

#include <cstdlib>

namespace triax::test {

namespace {

Gpu open(const char* path) {
  Gpu g;
  if (!*path) {
    g.missing = "no CUDA library was built";
    return g;
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    g.missing = dlerror();
    return g;
  }
  const auto open_device = reinterpret_cast<Device* (*)(int, int)>(dlsym(library, "triax_cuda_open_device"));
  const auto kernels = reinterpret_cast<const Kernels* (*)()>(dlsym(library, "triax_cuda_kernels"));
  g.set_order = reinterpret_cast<void (*)(int, unsigned)>(dlsym(library, "emulated_cuda_order"));
  if (!open_device || !kernels) {
    g.missing = std::string(path) + " has not the door of a CUDA library";
    return g;
  }
  try {
    g.device.reset(open_device(0, 1));
    g.kernels = kernels();
  } catch (const std::exception& e) {
    g.missing = std::string("no GPU: ") + e.what();
  }
  return g;
}

}  // namespace

Gpu& gpu(GpuKind kind) {
  // A device belongs to the thread that made it: the tests'.
  static Gpu emulated = open(TRIAX_CUDA_EMULATED_LIBRARY);
  if (kind == GpuKind::emulated) return emulated;
  const char* named = std::getenv("TRIAX_TEST_CUDA_LIBRARY");  // a bundle's lies elsewhere
  static Gpu real = open(named ? named : TRIAX_CUDA_LIBRARY);
  return real;
}

}  // namespace triax::test
