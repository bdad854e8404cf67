#pragma once

#include "comm/mpi/engine.h"

/// The operations of a group whose ranks share a host (HostGroup), with the bits of those of operations.h.
namespace triax::host {

std::shared_ptr<Operation> make_all_reduce(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in,
                                           const Tensor& out);
std::shared_ptr<Operation> make_all_gather(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in,
                                           const Tensor& out);
std::shared_ptr<Operation> make_reduce_scatter(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in,
                                               const Tensor& out);
std::shared_ptr<Operation> make_broadcast(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& inout);
std::shared_ptr<Operation> make_send(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in);
std::shared_ptr<Operation> make_recv(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& out);
std::shared_ptr<Operation> make_barrier(std::shared_ptr<MpiGroup>, const CommCall&);

}  // namespace triax::host
