#pragma once

#include <nccl.h>

#include <string>

namespace triax {

/// NCCL, opened at run time: a machine with one GPU needs none. The functions that are used, by their own
/// names without "nccl"; all of NCCL's rules on threads and order hold.
struct NcclLibrary {
  std::string path;
  int version = 0;  ///< 22809 is 2.28.9

  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclCommFinalize) CommFinalize = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclAllReduce) AllReduce = nullptr;
  decltype(&ncclAllGather) AllGather = nullptr;
  decltype(&ncclReduceScatter) ReduceScatter = nullptr;
  decltype(&ncclBroadcast) Broadcast = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
};

/// "2.28.9".
std::string nccl_version_text(int version);

/// The library, opened by the first who asks and never closed; null where it is missing or too old, and then
/// `why` says what was looked for.
const NcclLibrary* nccl_library(std::string* why);

}  // namespace triax
