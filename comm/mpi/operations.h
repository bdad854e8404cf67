#pragma once

#include "comm/mpi/engine.h"

namespace triax {

// MPI promises no order of its reductions, so ours are exchanges of pieces: every rank gets its piece of all
// inputs, adds them in rank order, and hands the result round. The bytes are those of a ring.
std::shared_ptr<Operation> make_all_reduce(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in,
                                           const Tensor& out);
std::shared_ptr<Operation> make_all_gather(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in,
                                           const Tensor& out);
std::shared_ptr<Operation> make_reduce_scatter(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in,
                                               const Tensor& out);
std::shared_ptr<Operation> make_broadcast(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& inout);
std::shared_ptr<Operation> make_send(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& in);
std::shared_ptr<Operation> make_recv(std::shared_ptr<MpiGroup>, const CommCall&, const Tensor& out);
/// Empty messages from each to each, so that a time-out can say who is missing.
std::shared_ptr<Operation> make_barrier(std::shared_ptr<MpiGroup>, const CommCall&);

}  // namespace triax
