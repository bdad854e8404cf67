#include "parallel/sequence.h"

namespace triax {

namespace {

Shape all_rows(const Pass& pass, const Tensor& local) {
  Shape shape = local.shape();
  shape[0] *= pass.context.mesh.tp().size();
  return shape;
}

}  // namespace

Tensor addends_of(Pass& pass, const Tensor& local, Scratch::Frame& frame) {
  if (!pass.context.sequence_parallel) return local;
  return frame.take("addends of all rows", all_rows(pass, local), local.dtype());
}

Tensor gather_rows(Pass& pass, const Tensor& local, Scratch::Frame& frame) {
  if (!pass.context.sequence_parallel) return local;
  const Tensor whole = frame.take("gathered rows", all_rows(pass, local), local.dtype());
  pass.context.mesh.tp().all_gather(local, whole).wait();
  return whole;
}

Pending sum_rows(Pass& pass, const Tensor& addends, const Tensor& local) {
  Communicator& tp = pass.context.mesh.tp();
  if (pass.context.sequence_parallel) return tp.reduce_scatter(addends, local, ReduceOp::sum);
  return tp.all_reduce(addends, local, ReduceOp::sum);
}

Tensor part_of(const Communicator& tp, const Tensor& whole) {
  const int64_t n = whole.numel() / tp.size();
  check(n * tp.size() == whole.numel(), "{} elements can't be cut over {} tensor ranks", whole.numel(),
        tp.size());
  return whole.reshape({whole.numel()}).rows(tp.rank() * n, n);
}

void join_parts(Communicator& tp, const Tensor& part, const Tensor& whole) {
  tp.all_gather(part, whole).wait();
}

}  // namespace triax
