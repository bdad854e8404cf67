#include "comm/mpi/operations.h"

#include <algorithm>
#include <cstring>

#include "comm/mpi/host_operations.h"
#include "comm/mpi/order_note.h"
#include "comm/reduce.h"

namespace triax {
namespace {

// Incoming pieces of one operation take at most about this much memory at a time; longer buffers go through
// in segments.
constexpr int64_t staging_bytes = int64_t{4} << 20;

enum Kind { gather_tag, spread_tag, order_tag, barrier_tag };

/// An operation of the whole group; its first step compares the ranks' calls when that is asked for.
class Collective : public MessageOperation {
 public:
  using MessageOperation::MessageOperation;

 protected:
  virtual bool post_work(int step) = 0;

 private:
  bool post(int step) final {
    if (!group().engine->options().check_order) return post_work(step);
    if (step == 0) {
      exchange_notes();
      return true;
    }
    if (step == 1)
      check_same_calls(group().name, size(), [this](int r) -> const OrderNote& { return notes_[r]; });
    return post_work(step - 1);
  }

  void exchange_notes() {
    notes_.resize(static_cast<size_t>(size()));
    notes_[rank()] = note_of(call());
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      recv(&notes_[peer], sizeof(OrderNote), peer, tag(order_tag));
      send(&notes_[rank()], sizeof(OrderNote), peer, tag(order_tag));
    }
  }

  std::vector<OrderNote> notes_;
};

/// What all_reduce and reduce_scatter share: the pieces of one's own part from all ranks, added in rank
/// order.
class Reduction : public Collective {
 public:
  Reduction(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& in, const Tensor& out)
      : Collective(std::move(g), c),
        in_(static_cast<const char*>(in.raw())),
        out_(static_cast<char*>(out.raw())),
        width_(static_cast<int64_t>(size_of(c.dtype))),
        piece_(std::max(staging_bytes / (width_ * size()), reduce_piece_elements)) {}
  ~Reduction() override { group().engine->give_staging(std::move(staging_)); }

 protected:
  /// Receives the others' `count` elements.
  void gather(int64_t count) {
    if (count == 0) return;
    const size_t bytes = static_cast<size_t>(count * width_);
    if (staging_.empty()) staging_ = group().engine->take_staging(bytes * static_cast<size_t>(size()));
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      recv(staging_.data() + bytes * static_cast<size_t>(peer), bytes, peer, tag(gather_tag));
    }
  }

  /// result = sum or maximum over ranks of what gather(count) brought and of `mine`.
  void reduce(const char* mine, int64_t count, char* result) {
    std::vector<const char*> inputs(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r) inputs[r] = r == rank() ? mine : staging_.data() + r * count * width_;
    reduce_buffers(call().dtype, static_cast<ReduceOp>(call().detail), inputs.data(), size(), count, result);
  }

  const char* in_;
  char* out_;
  int64_t width_, piece_;  // elements of a rank's piece of a segment

 private:
  std::vector<char> staging_;
};

class AllReduce final : public Reduction {
 public:
  using Reduction::Reduction;

 private:
  // A segment is cut into one piece for each rank.
  int64_t segment() const { return piece_ * size(); }
  int64_t begin_of(int64_t s, int r) const {
    const int64_t first = s * segment(), length = std::min(segment(), call().count - first);
    return first + part_begin(length, size(), r);
  }
  int64_t count_of(int64_t s, int r) const { return begin_of(s, r + 1) - begin_of(s, r); }

  bool post_work(int step) override {
    const int64_t segments = (call().count + segment() - 1) / segment();
    // Pieces of the next segment travel together with the results of the last one.
    if (step > 0 && step <= segments) spread(step - 1);
    if (step < segments) collect(step);
    return step <= segments && segments > 0;
  }

  void collect(int64_t s) {
    gather(count_of(s, rank()));
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      if (const int64_t n = count_of(s, peer))
        send(in_ + begin_of(s, peer) * width_, static_cast<size_t>(n * width_), peer, tag(gather_tag));
    }
  }

  // In place is safe: the messages that read this segment have been taken.
  void spread(int64_t s) {
    const int64_t begin = begin_of(s, rank()) * width_, mine = count_of(s, rank());
    reduce(in_ + begin, mine, out_ + begin);
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      if (const int64_t n = count_of(s, peer))
        recv(out_ + begin_of(s, peer) * width_, static_cast<size_t>(n * width_), peer, tag(spread_tag));
      if (mine) send(out_ + begin, static_cast<size_t>(mine * width_), peer, tag(spread_tag));
    }
  }
};

class ReduceScatter final : public Reduction {
 public:
  using Reduction::Reduction;

 private:
  int64_t part() const { return call().count / size(); }
  int64_t count_of(int64_t s) const { return std::min(piece_, part() - s * piece_); }

  bool post_work(int step) override {
    const int64_t segments = (part() + piece_ - 1) / piece_;
    if (step > 0 && step <= segments) {
      const int64_t begin = (step - 1) * piece_;
      reduce(in_ + (rank() * part() + begin) * width_, count_of(step - 1), out_ + begin * width_);
    }
    if (step >= segments) return false;
    const int64_t begin = step * piece_, count = count_of(step);
    gather(count);
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      send(in_ + (peer * part() + begin) * width_, static_cast<size_t>(count * width_), peer,
           tag(gather_tag));
    }
    return true;
  }
};

class AllGather final : public Collective {
 public:
  AllGather(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& in, const Tensor& out)
      : Collective(std::move(g), c), in_(in), out_(static_cast<char*>(out.raw())) {}

 private:
  bool post_work(int step) override {
    if (step > 0 || in_.bytes() == 0) return false;
    const size_t bytes = in_.bytes();
    for (int i = 1; i < size(); ++i) {
      const int from = (rank() + size() - i) % size(), to = (rank() + i) % size();
      recv(out_ + bytes * static_cast<size_t>(from), bytes, from, tag(spread_tag));
      send(in_.raw(), bytes, to, tag(spread_tag));
    }
    char* mine = out_ + bytes * static_cast<size_t>(rank());
    if (mine != in_.raw()) std::memcpy(mine, in_.raw(), bytes);
    return true;
  }
  Tensor in_;
  char* out_;
};

/// A binomial tree: the payload leaves the root log2(n) times, and every other rank gets it once.
class Broadcast final : public Collective {
 public:
  Broadcast(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& inout)
      : Collective(std::move(g), c), inout_(inout) {}

 private:
  int real(int relative) const { return (relative + call().detail) % size(); }

  bool post_work(int step) override {
    if (inout_.bytes() == 0 || step > 1) return false;
    const int me = (rank() - call().detail + size()) % size();  // counted from the root
    const int lowest = me == 0 ? size() : me & -me;             // my parent is me without this bit
    if (step == 0) {
      if (me != 0) recv(inout_.raw(), inout_.bytes(), real(me - lowest), tag(spread_tag));
      return true;
    }
    int highest = 1;
    while (highest * 2 < std::min(lowest, size())) highest *= 2;
    for (int bit = highest; bit > 0; bit /= 2)
      if (bit < lowest && me + bit < size())
        send(inout_.raw(), inout_.bytes(), real(me + bit), tag(spread_tag));
    return true;
  }
  Tensor inout_;
};

class Barrier final : public Collective {
 public:
  using Collective::Collective;

 private:
  bool post_work(int step) override {
    if (step > 0) return false;
    for (int i = 1; i < size(); ++i) {
      const int from = (rank() + size() - i) % size(), to = (rank() + i) % size();
      recv(nullptr, 0, from, tag(barrier_tag));
      send(nullptr, 0, to, tag(barrier_tag));
    }
    return true;
  }
};

class PointToPoint final : public MessageOperation {
 public:
  PointToPoint(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& buffer)
      : MessageOperation(std::move(g), c), buffer_(buffer) {}

 private:
  static constexpr int message_tag = 0;  // one tag: the order of sends is the order of messages
  bool post(int step) override {
    if (step > 0) return false;
    if (call().op == CommOp::send)
      send(buffer_.raw(), buffer_.bytes(), call().detail, message_tag);
    else
      recv(buffer_.raw(), buffer_.bytes(), call().detail, message_tag);
    return true;
  }
  Tensor buffer_;
};

}  // namespace

std::shared_ptr<Operation> make_all_reduce(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                           const Tensor& in, const Tensor& out) {
  if (g->host) return host::make_all_reduce(std::move(g), call, in, out);
  return std::make_shared<AllReduce>(std::move(g), call, in, out);
}
std::shared_ptr<Operation> make_all_gather(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                           const Tensor& in, const Tensor& out) {
  if (g->host) return host::make_all_gather(std::move(g), call, in, out);
  return std::make_shared<AllGather>(std::move(g), call, in, out);
}
std::shared_ptr<Operation> make_reduce_scatter(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                               const Tensor& in, const Tensor& out) {
  if (g->host) return host::make_reduce_scatter(std::move(g), call, in, out);
  return std::make_shared<ReduceScatter>(std::move(g), call, in, out);
}
std::shared_ptr<Operation> make_broadcast(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                          const Tensor& inout) {
  if (g->host) return host::make_broadcast(std::move(g), call, inout);
  return std::make_shared<Broadcast>(std::move(g), call, inout);
}
std::shared_ptr<Operation> make_send(std::shared_ptr<MpiGroup> g, const CommCall& call, const Tensor& in) {
  if (g->host && g->host->carries_messages()) return host::make_send(std::move(g), call, in);
  return std::make_shared<PointToPoint>(std::move(g), call, in);
}
std::shared_ptr<Operation> make_recv(std::shared_ptr<MpiGroup> g, const CommCall& call, const Tensor& out) {
  if (g->host && g->host->carries_messages()) return host::make_recv(std::move(g), call, out);
  return std::make_shared<PointToPoint>(std::move(g), call, out);
}
std::shared_ptr<Operation> make_barrier(std::shared_ptr<MpiGroup> g, const CommCall& call) {
  if (g->host) return host::make_barrier(std::move(g), call);
  return std::make_shared<Barrier>(std::move(g), call);
}

}  // namespace triax
