#pragma once

#include <memory>
#include <string>

#include "comm/device_link.h"
#include "core/device_cuda.h"

namespace triax {

/// The sum or maximum over ranks, in their order, of one's own elements and of what the others sent: element
/// i of rank r is pieces[r * stride + i], of `rank` itself mine[i]. Enqueued on `stream`; with the bits of
/// reduce_piece() (comm/reduce.h). `result` may be `mine`.
struct PieceSum {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  const void* pieces = nullptr;
  int64_t stride = 0, count = 0;
  const void* mine = nullptr;
  int rank = 0, ranks = 1;
  void* result = nullptr;
};
using AddPieces = void (*)(cudaStream_t stream, const PieceSum& sum);

/// DeviceLink::connect() for CUDA: NCCL where each member of the group has a GPU of its own.
std::unique_ptr<Communicator> connect_nccl(std::unique_ptr<Communicator>& group, CudaDevice& device,
                                           const DeviceMessages& messages, AddPieces add, std::string& why);

}  // namespace triax
