#include "comm/nccl/library.h"

#include <dlfcn.h>

#include "core/error.h"
#include "core/library.h"

namespace triax {

namespace {

// 2.18: communicators that are made without blocking, with the configuration's fields that are set here.
constexpr int kOldest = 21800;

struct Opened {
  NcclLibrary library;
  std::string why;  // not; empty when it is open
};

template <class F>
void find(void* handle, const char* name, F& function, std::string& missing) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  if (!function && missing.empty()) missing = name;
}

std::string open(NcclLibrary& nccl) {
  nccl.path = nccl_library_name();
  void* handle = dlopen(nccl.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return fmt::format("{} can't be opened: {}", nccl.path, dlerror());
  decltype(&ncclGetVersion) get_version = nullptr;
  std::string missing;
  find(handle, "ncclGetVersion", get_version, missing);
  if (get_version && get_version(&nccl.version) == ncclSuccess && nccl.version < kOldest)
    return fmt::format("{} is NCCL {}; {} or newer is needed", nccl.path, nccl_version_text(nccl.version),
                       nccl_version_text(kOldest));
  find(handle, "ncclGetUniqueId", nccl.GetUniqueId, missing);
  find(handle, "ncclCommInitRankConfig", nccl.CommInitRankConfig, missing);
  find(handle, "ncclCommGetAsyncError", nccl.CommGetAsyncError, missing);
  find(handle, "ncclCommFinalize", nccl.CommFinalize, missing);
  find(handle, "ncclCommDestroy", nccl.CommDestroy, missing);
  find(handle, "ncclCommAbort", nccl.CommAbort, missing);
  find(handle, "ncclGetErrorString", nccl.GetErrorString, missing);
  find(handle, "ncclGetLastError", nccl.GetLastError, missing);
  find(handle, "ncclAllReduce", nccl.AllReduce, missing);
  find(handle, "ncclAllGather", nccl.AllGather, missing);
  find(handle, "ncclReduceScatter", nccl.ReduceScatter, missing);
  find(handle, "ncclBroadcast", nccl.Broadcast, missing);
  find(handle, "ncclSend", nccl.Send, missing);
  find(handle, "ncclRecv", nccl.Recv, missing);
  find(handle, "ncclGroupStart", nccl.GroupStart, missing);
  find(handle, "ncclGroupEnd", nccl.GroupEnd, missing);
  return missing.empty() ? "" : fmt::format("{} has no {}: it is no NCCL", nccl.path, missing);
}

}  // namespace

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

const NcclLibrary* nccl_library(std::string* why) {
  static const Opened opened = [] {
    Opened o;
    o.why = open(o.library);
    return o;
  }();
  if (opened.why.empty()) return &opened.library;
  if (why) *why = opened.why;
  return nullptr;
}

}  // namespace triax
