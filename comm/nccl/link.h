#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/nccl/flights.h"
#include "comm/nccl/library.h"
#include "core/device_cuda.h"

namespace triax {

/// A communicator of NCCL with a stream of its own. It never blocks inside of NCCL: what takes time is
/// polled, so that an error, or the end of the job, gets through. Errors name the operation, its group and
/// what NCCL says, after all links of the rank have been aborted.
class NcclLink {
 public:
  /// Collective over `size` ranks with the same `id`, this one being `rank` of them; `call` of the group is
  /// what it is made for. Returns when all have come.
  NcclLink(const NcclLibrary& nccl, std::shared_ptr<Flights> flights, CudaDevice& device, std::string group,
           const ncclUniqueId& id, int size, int rank, const CommCall& call);
  /// Waits for what is under way, unless an exception unwinds the stack: then it aborts.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  const NcclLibrary& nccl() const { return nccl_; }
  const std::string& group() const { return group_; }
  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }

  /// What is enqueued on the link's stream from now on begins after what is enqueued on the device's.
  void follow_device();
  /// Calls of NCCL between begin() and end() are one operation of its own (ncclGroupStart, ncclGroupEnd);
  /// end() returns when all is enqueued.
  void begin(const CommCall& call);
  void end(const CommCall& call);
  /// Each result of a call of NCCL.
  void check(ncclResult_t result, const CommCall& call);
  /// The end of the operation: all that is enqueued on the link so far.
  CudaEvent finish(const CommCall& call, uint64_t ticket);

  /// Device memory for the pieces of rank-ordered sums, of at most scratch_bytes, in the order of the stream.
  void* scratch();
  static constexpr size_t scratch_bytes() { return size_t{8} << 20; }

  /// Throws when NCCL has found an error while it works.
  void check_error(const CommCall& call);
  void abort() noexcept;

 private:
  [[noreturn]] void failed(ncclResult_t result, const CommCall& call);
  ncclResult_t settled(const CommCall& call);
  void close() noexcept;

  const NcclLibrary& nccl_;
  std::shared_ptr<Flights> flights_;
  CudaDevice& device_;
  std::string group_;
  bool begun_ = false;  // between begin() and end()
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
};

}  // namespace triax
