#include "comm/communicator.h"

#include <functional>
#include <utility>

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

/// A call that the rank is inside of, until its end or that of this.
class Communicator::Started {
 public:
  Started(Recorder& recorder, const std::shared_ptr<const CommGroup>& group, const CommCall& c)
      : call(c),
        begin(Pending::Clock::now()),
        ticket(recorder.begin(group, c, begin)),
        recorder_(&recorder) {}
  ~Started() {
    if (recorder_) recorder_->leave(Pending::Clock::now());
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  void leave(Pending::Clock::time_point now) { std::exchange(recorder_, nullptr)->leave(now); }

  const CommCall call;
  const Pending::Clock::time_point begin;
  const uint64_t ticket;

 private:
  Recorder* recorder_;
};

Communicator::Communicator(int rank, CommGroup group, std::shared_ptr<Recorder> recorder)
    : recorder_(std::move(recorder)), rank_(rank) {
  const int size = group.size;
  group_ = std::make_shared<const CommGroup>(std::move(group));
  if (!recorder_) recorder_ = std::make_shared<Recorder>();
  check(size > 0 && rank >= 0 && rank < size, "rank {} of a group of {}: it must be 0 to {}", rank, size,
        size - 1);
}

Communicator::Communicator(const Communicator& before, std::string transport)
    : recorder_(before.recorder_),
      rank_(before.rank_),
      group_(before.group_),
      transport_(std::move(transport)),
      collectives_(before.collectives_),
      messages_(before.messages_) {}

Communicator::Started Communicator::start(CommOp op, DType dtype, int64_t count, int detail,
                                          const std::source_location& place) {
  const bool message = op == CommOp::send || op == CommOp::recv;
  uint64_t& sequence = message ? messages_[{op, detail}] : collectives_;
  return {*recorder_, group_, {op, dtype, count, detail, sequence++, place}};
}

Pending Communicator::track(Pending pending, Started& started) {
  const auto now = Pending::Clock::now();
  started.leave(now);
  std::pair<std::string, CommOp> operation{name(), started.call.op};
  recorder_->add_seconds(operation, std::chrono::duration<double>(now - started.begin).count(), 0);
  if (pending.state_) {
    pending.recorder_ = recorder_;
    pending.ticket_ = started.ticket;
    pending.operation_ = std::move(operation);
    pending.started_ = now;
    pending.exposed_before_ = recorder_->exposed_seconds();
  } else {
    recorder_->finish(started.ticket, now);
  }
  return pending;
}

void Communicator::require(bool condition, CommOp op, const std::source_location& place,
                           const std::string& what) const {
  if (!condition) [[unlikely]]
    throw Error(
        ErrorKind::fault,
        fmt::format("{} at {} in group '{}' of {}: {}", name_of(op), to_string(place), name(), size(), what),
        place);
}

void Communicator::require_peer(CommOp op, int peer, const std::source_location& place) const {
  if (peer >= 0 && peer < size() && peer != rank_) [[likely]]
    return;
  require(false, op, place,
          peer == rank_ ? fmt::format("rank {} is the caller itself; use the tensor directly", peer)
                        : fmt::format("there is no rank {}; valid are 0 to {}", peer, size() - 1));
}

Pending Communicator::all_reduce(const Tensor& in, const Tensor& out, ReduceOp op,
                                 std::source_location place) {
  if (in.dtype() != out.dtype() || in.numel() != out.numel() || (in.raw() != out.raw() && overlap(in, out)))
    require(
        false, CommOp::all_reduce, place,
        fmt::format("in is {}, out is {}; dtype and size must be equal, and the buffers the same or apart",
                    text(in), text(out)));
  Started s = start(CommOp::all_reduce, in.dtype(), in.numel(), static_cast<int>(op), place);
  return track(do_all_reduce(s.call, in, out, op), s);
}

Pending Communicator::all_gather(const Tensor& in, const Tensor& out, std::source_location place) {
  if (in.dtype() != out.dtype() || in.numel() * size() != out.numel() ||
      (overlap(in, out) && !is_part(in, out, rank_)))
    require(false, CommOp::all_gather, place,
            fmt::format("in is {}, out is {}; out must have {} times the elements of in and the same dtype, "
                        "and in must be part {} of out or apart from it",
                        text(in), text(out), size(), rank_));
  Started s = start(CommOp::all_gather, in.dtype(), out.numel(), 0, place);
  return track(do_all_gather(s.call, in, out), s);
}

Pending Communicator::reduce_scatter(const Tensor& in, const Tensor& out, ReduceOp op,
                                     std::source_location place) {
  if (in.dtype() != out.dtype() || out.numel() * size() != in.numel() ||
      (overlap(in, out) && !is_part(out, in, rank_)))
    require(false, CommOp::reduce_scatter, place,
            fmt::format("in is {}, out is {}; in must have {} times the elements of out and the same dtype, "
                        "and out must be part {} of in or apart from it",
                        text(in), text(out), size(), rank_));
  Started s = start(CommOp::reduce_scatter, in.dtype(), in.numel(), static_cast<int>(op), place);
  return track(do_reduce_scatter(s.call, in, out, op), s);
}

Pending Communicator::broadcast(const Tensor& inout, int root, std::source_location place) {
  if (root < 0 || root >= size())
    require(false, CommOp::broadcast, place,
            fmt::format("there is no rank {}; valid are 0 to {}", root, size() - 1));
  Started s = start(CommOp::broadcast, inout.dtype(), inout.numel(), root, place);
  return track(do_broadcast(s.call, inout, root), s);
}

Pending Communicator::send(const Tensor& in, int to, std::source_location place) {
  require_peer(CommOp::send, to, place);
  Started s = start(CommOp::send, in.dtype(), in.numel(), to, place);
  return track(do_send(s.call, in, to), s);
}

Pending Communicator::recv(const Tensor& out, int from, std::source_location place) {
  require_peer(CommOp::recv, from, place);
  Started s = start(CommOp::recv, out.dtype(), out.numel(), from, place);
  return track(do_recv(s.call, out, from), s);
}

void Communicator::barrier(std::source_location place) {
  Started s = start(CommOp::barrier, DType::u8, 0, 0, place);
  do_barrier(s.call);
  track({}, s);
}

std::unique_ptr<Communicator> Communicator::split(int color, std::string name, std::source_location place) {
  Started s = start(CommOp::split, DType::u8, 0, 0, place);
  auto group = do_split(s.call, color, std::move(name));
  recorder_->finish(s.ticket, Pending::Clock::now());
  return group;
}

}  // namespace triax
