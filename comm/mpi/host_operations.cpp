#include "comm/mpi/host_operations.h"

#include <algorithm>
#include <cstring>

#include "comm/mpi/host_group.h"
#include "comm/reduce.h"

namespace triax::host {
namespace {

void copy(char* to, const char* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// A collective in phases: in phase k a rank gives a piece to the others, and when all have it takes what it
/// needs of theirs.
class Collective : public Operation {
 public:
  Collective(std::shared_ptr<MpiGroup> g, const CommCall& c)
      : Operation(std::move(g), c), number_(shared().collectives.started++) {}
  std::vector<int> peers() final { return shared().behind(); }
  bool rings() const final { return true; }

 protected:
  virtual int64_t phases() const = 0;  // the same on all ranks, whatever they have to give; at least 1
  virtual void give(int64_t phase, char* area) = 0;
  virtual void take(int64_t phase) = 0;

  HostGroup& shared() { return *group().host; }
  const char* area(int rank) { return shared().area(rank); }
  int64_t area_bytes() { return static_cast<int64_t>(shared().area_bytes()); }
  int64_t width() const { return static_cast<int64_t>(size_of(call().dtype)); }
  /// Phases for `count` of anything that go `each` at a time.
  static int64_t phases_of(int64_t count, int64_t each) {
    return std::max<int64_t>((count + each - 1) / each, 1);
  }

 private:
  bool ready() final { return shared().collectives.done == number_ && shared().all_here(); }

  bool post(int step) final {
    if (step == 1)
      check_same_calls(group().name, size(), [this](int r) -> const OrderNote& { return shared().note(r); });
    if (step > 0) take(step - 1);
    if (step > 0 && step == phases()) {
      ++shared().collectives.done;
      return false;
    }
    if (step == 0) shared().next_note() = note_of(call());
    give(step, shared().next_area());
    shared().publish();
    return true;
  }

  const uint64_t number_;
};

/// Elements `begin` to `begin + count` of a buffer.
struct Range {
  int64_t begin, count;
};

class AllReduce final : public Collective {
 public:
  AllReduce(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& in, const Tensor& out)
      : Collective(std::move(g), c),
        in_(static_cast<const char*>(in.raw())),
        out_(static_cast<char*>(out.raw())),
        segment_(area_bytes() / width()),
        alone_(size() == 2 || call().count * width() * size() <= small_work) {}

 private:
  // Up to this many bytes over all ranks each adds everything itself, which saves a phase. Of two, each reads
  // the other's whole buffer in any case.
  static constexpr int64_t small_work = 512 * 1024;

  // In a group of more a segment takes two phases: each adds its part, and then gives the sum.
  int64_t phases() const override { return phases_of(call().count, segment_) * (alone_ ? 1 : 2); }
  Range segment(int64_t s) const { return {s * segment_, std::min(segment_, call().count - s * segment_)}; }
  Range part(int64_t s, int r) const {
    const Range all = segment(s);
    const int64_t begin = part_begin(all.count, size(), r), end = part_begin(all.count, size(), r + 1);
    return {all.begin + begin, end - begin};
  }

  void give(int64_t phase, char* to) override {
    const bool sums = !alone_ && phase % 2;
    const Range range = sums ? part(phase / 2, rank()) : segment(alone_ ? phase : phase / 2);
    copy(to, (sums ? out_ : in_) + range.begin * width(), range.count * width());
  }

  void take(int64_t phase) override {
    const Range all = segment(alone_ ? phase : phase / 2);
    if (alone_) return reduce(all, all);
    if (phase % 2 == 0) return reduce(all, part(phase / 2, rank()));
    for (int r = 0; r < size(); ++r)
      if (const Range theirs = part(phase / 2, r); r != rank())
        copy(out_ + theirs.begin * width(), area(r), theirs.count * width());
  }

  // `range` of the segment that lies in the areas.
  void reduce(const Range& segment, const Range& range) {
    std::vector<const char*> inputs(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r)
      inputs[r] =
          r == rank() ? in_ + range.begin * width() : area(r) + (range.begin - segment.begin) * width();
    reduce_buffers(call().dtype, static_cast<ReduceOp>(call().detail), inputs.data(), size(), range.count,
                   out_ + range.begin * width());
  }

  const char* in_;
  char* out_;
  const int64_t segment_;  // elements that go at a time
  const bool alone_;
};

class ReduceScatter final : public Collective {
 public:
  ReduceScatter(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& in, const Tensor& out)
      : Collective(std::move(g), c),
        in_(static_cast<const char*>(in.raw())),
        out_(static_cast<char*>(out.raw())),
        part_(c.count / size()),
        segment_(area_bytes() / width() / (size() - 1)) {}

 private:
  int64_t phases() const override { return phases_of(part_, segment_); }
  Range segment(int64_t s) const { return {s * segment_, std::min(segment_, part_ - s * segment_)}; }
  // An area has a piece of every part but the giver's own.
  int64_t place(int part, int giver, const Range& range) const {
    return (part < giver ? part : part - 1) * range.count * width();
  }

  void give(int64_t phase, char* to) override {
    const Range range = segment(phase);
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        copy(to + place(r, rank(), range), in_ + (r * part_ + range.begin) * width(), range.count * width());
  }
  void take(int64_t phase) override {
    const Range range = segment(phase);
    std::vector<const char*> inputs(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r)
      inputs[r] =
          r == rank() ? in_ + (rank() * part_ + range.begin) * width() : area(r) + place(rank(), r, range);
    reduce_buffers(call().dtype, static_cast<ReduceOp>(call().detail), inputs.data(), size(), range.count,
                   out_ + range.begin * width());
  }

  const char* in_;
  char* out_;
  const int64_t part_, segment_;  // elements
};

class AllGather final : public Collective {
 public:
  AllGather(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& in, const Tensor& out)
      : Collective(std::move(g), c),
        in_(static_cast<const char*>(in.raw())),
        out_(static_cast<char*>(out.raw())),
        bytes_(static_cast<int64_t>(in.bytes())) {}

 private:
  int64_t phases() const override { return phases_of(bytes_, segment_); }
  int64_t begin(int64_t phase) const { return phase * segment_; }
  int64_t count(int64_t phase) const { return std::min(segment_, bytes_ - begin(phase)); }

  void give(int64_t phase, char* to) override { copy(to, in_ + begin(phase), count(phase)); }
  void take(int64_t phase) override {
    for (int r = 0; r < size(); ++r)
      copy(out_ + r * bytes_ + begin(phase), r == rank() ? in_ + begin(phase) : area(r), count(phase));
  }

  const char* in_;
  char* out_;
  const int64_t bytes_, segment_ = area_bytes();
};

class Broadcast final : public Collective {
 public:
  Broadcast(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& inout)
      : Collective(std::move(g), c),
        inout_(static_cast<char*>(inout.raw())),
        bytes_(static_cast<int64_t>(inout.bytes())) {}

 private:
  int root() const { return call().detail; }
  int64_t phases() const override { return phases_of(bytes_, segment_); }
  int64_t count(int64_t phase) const { return std::min(segment_, bytes_ - phase * segment_); }

  void give(int64_t phase, char* to) override {
    if (rank() == root()) copy(to, inout_ + phase * segment_, count(phase));
  }
  void take(int64_t phase) override {
    if (rank() != root()) copy(inout_ + phase * segment_, area(root()), count(phase));
  }

  char* inout_;
  const int64_t bytes_, segment_ = area_bytes();
};

class Barrier final : public Collective {
 public:
  using Collective::Collective;

 private:
  int64_t phases() const override { return 1; }
  void give(int64_t, char*) override {}
  void take(int64_t) override {}
};

/// One side of a message. It goes in pieces; an empty one has one, too: it is a signal.
class PointToPoint final : public Operation {
 public:
  PointToPoint(std::shared_ptr<MpiGroup> g, const CommCall& c, const Tensor& buffer)
      : Operation(std::move(g), c),
        buffer_(static_cast<char*>(buffer.raw())),
        bytes_(buffer.bytes()),
        number_(line().started++) {}
  std::vector<int> peers() override { return {peer()}; }
  bool rings() const override { return true; }

 private:
  bool sends() const { return call().op == CommOp::send; }
  int peer() const { return call().detail; }
  HostGroup& shared() { return *group().host; }
  HostGroup::Line& line() { return (sends() ? shared().sends : shared().recvs)[peer()]; }

  bool ready() override {
    return line().done == number_ && (sends() ? shared().has_room(peer()) : shared().has_piece(peer()));
  }

  bool post(int step) override {
    const size_t begin = static_cast<size_t>(step) * HostGroup::piece_bytes;
    const size_t count = std::min(HostGroup::piece_bytes, bytes_ - begin);
    if (sends()) {
      shared().put(peer(), buffer_ + begin, count, bytes_);
    } else {
      const size_t sent = shared().message_bytes(peer());
      check(sent == bytes_,
            "a message of rank {} has {} bytes where {} were expected: the two ranks differ in dtype or size",
            peer(), sent, bytes_);
      shared().take(peer(), buffer_ + begin, count);
    }
    if (begin + count < bytes_) return true;
    ++line().done;
    return false;
  }

  char* buffer_;
  const size_t bytes_;
  const uint64_t number_;
};

}  // namespace

std::shared_ptr<Operation> make_all_reduce(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                           const Tensor& in, const Tensor& out) {
  return std::make_shared<AllReduce>(std::move(g), call, in, out);
}
std::shared_ptr<Operation> make_all_gather(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                           const Tensor& in, const Tensor& out) {
  return std::make_shared<AllGather>(std::move(g), call, in, out);
}
std::shared_ptr<Operation> make_reduce_scatter(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                               const Tensor& in, const Tensor& out) {
  return std::make_shared<ReduceScatter>(std::move(g), call, in, out);
}
std::shared_ptr<Operation> make_broadcast(std::shared_ptr<MpiGroup> g, const CommCall& call,
                                          const Tensor& inout) {
  return std::make_shared<Broadcast>(std::move(g), call, inout);
}
std::shared_ptr<Operation> make_send(std::shared_ptr<MpiGroup> g, const CommCall& call, const Tensor& in) {
  return std::make_shared<PointToPoint>(std::move(g), call, in);
}
std::shared_ptr<Operation> make_recv(std::shared_ptr<MpiGroup> g, const CommCall& call, const Tensor& out) {
  return std::make_shared<PointToPoint>(std::move(g), call, out);
}
std::shared_ptr<Operation> make_barrier(std::shared_ptr<MpiGroup> g, const CommCall& call) {
  return std::make_shared<Barrier>(std::move(g), call);
}

}  // namespace triax::host
