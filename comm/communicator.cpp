#include "comm/communicator.h"

#include <functional>

namespace triax {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  const auto* p = static_cast<const char*>(a.raw());
  const auto* q = static_cast<const char*>(b.raw());
  const std::less<const char*> less;
  return a.bytes() && b.bytes() && less(p, q + b.bytes()) && less(q, p + a.bytes());
}

// The address where part `index` of `whole` begins, with parts of the size of `part`.
bool is_part(const Tensor& part, const Tensor& whole, int index) {
  return part.raw() == static_cast<const char*>(whole.raw()) + static_cast<size_t>(index) * part.bytes();
}

std::string text(const Tensor& t) {
  return fmt::format("{}[{}]", name_of(t.dtype()), t.numel());
}

}  // namespace

struct Communicator::Started {
  CommCall call;
  uint64_t ticket;
  Pending::Clock::time_point begin;
};

Communicator::Communicator(int rank, int size, std::string name, std::shared_ptr<Recorder> recorder)
    : recorder_(std::move(recorder)), rank_(rank), size_(size), name_(std::move(name)) {
  if (!recorder_) recorder_ = std::make_shared<Recorder>();
  check(size > 0 && rank >= 0 && rank < size, "rank {} of a group of {}: it must be 0 to {}", rank, size,
        size - 1);
}

Communicator::Started Communicator::start(CommOp op, DType dtype, int64_t count, int detail,
                                          const std::source_location& place) {
  const bool message = op == CommOp::send || op == CommOp::recv;
  uint64_t& sequence = message ? messages_[{op, detail}] : collectives_;
  Started started{{op, dtype, count, detail, sequence++, place}, 0, Pending::Clock::now()};
  started.ticket = recorder_->begin(name_, size_, started.call);
  return started;
}

Pending Communicator::track(Pending pending, const Started& started) {
  const auto now = Pending::Clock::now();
  std::pair<std::string, CommOp> operation{name_, started.call.op};
  recorder_->add_seconds(operation, std::chrono::duration<double>(now - started.begin).count(), 0);
  if (pending.state_) {
    pending.recorder_ = recorder_;
    pending.ticket_ = started.ticket;
    pending.operation_ = std::move(operation);
    pending.started_ = now;
    pending.exposed_before_ = recorder_->exposed_seconds();
  } else {
    recorder_->finish(started.ticket);
  }
  return pending;
}

void Communicator::require(bool condition, CommOp op, const std::source_location& place,
                           const std::string& what) const {
  if (!condition) [[unlikely]]
    throw Error(
        ErrorKind::fault,
        fmt::format("{} at {} in group '{}' of {}: {}", name_of(op), to_string(place), name_, size_, what),
        place);
}

void Communicator::require_peer(CommOp op, int peer, const std::source_location& place) const {
  if (peer >= 0 && peer < size_ && peer != rank_) [[likely]]
    return;
  require(false, op, place,
          peer == rank_ ? fmt::format("rank {} is the caller itself; use the tensor directly", peer)
                        : fmt::format("there is no rank {}; valid are 0 to {}", peer, size_ - 1));
}

Pending Communicator::all_reduce(const Tensor& in, const Tensor& out, ReduceOp op,
                                 std::source_location place) {
  if (in.dtype() != out.dtype() || in.numel() != out.numel() || (in.raw() != out.raw() && overlap(in, out)))
    require(
        false, CommOp::all_reduce, place,
        fmt::format("in is {}, out is {}; dtype and size must be equal, and the buffers the same or apart",
                    text(in), text(out)));
  const Started s = start(CommOp::all_reduce, in.dtype(), in.numel(), static_cast<int>(op), place);
  return track(do_all_reduce(s.call, in, out, op), s);
}

Pending Communicator::all_gather(const Tensor& in, const Tensor& out, std::source_location place) {
  if (in.dtype() != out.dtype() || in.numel() * size_ != out.numel() ||
      (overlap(in, out) && !is_part(in, out, rank_)))
    require(false, CommOp::all_gather, place,
            fmt::format("in is {}, out is {}; out must have {} times the elements of in and the same dtype, "
                        "and in must be part {} of out or apart from it",
                        text(in), text(out), size_, rank_));
  const Started s = start(CommOp::all_gather, in.dtype(), out.numel(), 0, place);
  return track(do_all_gather(s.call, in, out), s);
}

Pending Communicator::reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op,
                                     std::source_location place) {
  if (in.dtype() != out.dtype() || out.numel() * size_ != in.numel() ||
      (overlap(in, out) && !is_part(out, in, rank_)))
    require(false, CommOp::reduce_scatter, place,
            fmt::format("in is {}, out is {}; in must have {} times the elements of out and the same dtype, "
                        "and out must be part {} of in or apart from it",
                        text(in), text(out), size_, rank_));
  const Started s = start(CommOp::reduce_scatter, in.dtype(), in.numel(), static_cast<int>(op), place);
  return track(do_reduce_scatter(s.call, in, out, op), s);
}

Pending Communicator::broadcast(const Tensor& inout, int root, std::source_location place) {
  if (root < 0 || root >= size_)
    require(false, CommOp::broadcast, place,
            fmt::format("there is no rank {}; valid are 0 to {}", root, size_ - 1));
  const Started s = start(CommOp::broadcast, inout.dtype(), inout.numel(), root, place);
  return track(do_broadcast(s.call, inout, root), s);
}

Pending Communicator::send(const Tensor& in, int to, std::source_location place) {
  require_peer(CommOp::send, to, place);
  const Started s = start(CommOp::send, in.dtype(), in.numel(), to, place);
  return track(do_send(s.call, in, to), s);
}

Pending Communicator::recv(const Tensor& out, int from, std::source_location place) {
  require_peer(CommOp::recv, from, place);
  const Started s = start(CommOp::recv, out.dtype(), out.numel(), from, place);
  return track(do_recv(s.call, out, from), s);
}

void Communicator::barrier(std::source_location place) {
  const Started s = start(CommOp::barrier, DType::u8, 0, 0, place);
  do_barrier(s.call);
  track({}, s);
}

std::unique_ptr<Communicator> Communicator::split(int color, std::string name, std::source_location place) {
  const Started s = start(CommOp::split, DType::u8, 0, 0, place);
  auto group = do_split(s.call, color, std::move(name));
  recorder_->finish(s.ticket);
  return group;
}

}  // namespace triax
