#include "comm/nccl/communicator.h"

#include <map>
#include <utility>

#include "comm/nccl/link.h"
#include "comm/over_host.h"
#include "comm/reduce.h"
#include "core/error.h"

namespace triax {

namespace {

// What a host may run ahead of its GPU: kernels between so many operations fit the queue of launches (1024),
// in which a host would wait without being seen by its watchdog.
constexpr size_t kMostUnderWay = 32;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::u8:
      return ncclUint8;
  }
  fail("NCCL has no type for {}", name_of(dtype));
}

ncclRedOp_t nccl_op(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : ncclMax;
}

std::shared_ptr<Flights> flights_of(CudaDevice& device, const std::shared_ptr<Recorder>& recorder) {
  auto flights = std::dynamic_pointer_cast<Flights>(device.watch());
  if (!flights) {
    flights = std::make_shared<Flights>(recorder);
    device.set_watch(flights);
  }
  return flights;
}

class NcclCommunicator final : public OverHost {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, CudaDevice& device, const DeviceMessages& messages,
                   AddPieces add, const NcclLibrary& nccl)
      : OverHost(std::move(host), "NCCL " + nccl_version_text(nccl.version) +
                                      (messages.rank_order ? ", sums in rank order" : "")),
        nccl_(nccl),
        device_(device),
        messages_(messages),
        add_(add),
        flights_(flights_of(device, recorder_)) {}

 private:
  struct State final : Pending::State {
    State(CudaDevice& d, std::shared_ptr<Flights> f, CudaEvent e, const CommCall& c, std::string g)
        : device(d), flights(std::move(f)), done(std::move(e)), call(c), group(std::move(g)) {}
    void wait() override {
      flights->check_alive(call);
      check_cuda(cudaStreamWaitEvent(device.stream(), done.get(), 0), "cudaStreamWaitEvent");
    }
    void abandon() noexcept override {
      flights->abort(fmt::format("an exception left {} in group '{}' unfinished", describe(call), group));
    }
    Pending::Span work() const override { return {enqueued, enqueued}; }
    bool runs_on() const override { return true; }
    CudaDevice& device;
    std::shared_ptr<Flights> flights;
    CudaEvent done;
    CommCall call;
    std::string group;
    Pending::Clock::time_point enqueued = Pending::Clock::now();
  };

  /// enqueue() gives the link its work, in the order of what the device was given before.
  template <class Enqueue>
  Pending run(NcclLink& link, const CommCall& call, Enqueue&& enqueue) {
    flights_->wait_for(kMostUnderWay);
    link.follow_device();
    enqueue();
    return Pending(std::make_unique<State>(device_, flights_, link.finish(call, recorder_->position().ticket),
                                           call, name()));
  }
  /// The same of one call of NCCL.
  template <class Call>
  Pending run_one(NcclLink& link, const CommCall& call, Call&& nccl_call) {
    return run(link, call, [&] {
      link.begin(call);
      link.check(nccl_call(), call);
      link.end(call);
    });
  }

  // Making a link may make the GPU wait for all that it has to do, and that for a peer which makes one, too.
  void prepare(const CommCall& call) {
    flights_->check_alive(call);
    flights_->wait_for(0);
  }
  ncclUniqueId new_id(const CommCall& call) {
    ncclUniqueId id{};
    if (const ncclResult_t result = nccl_.GetUniqueId(&id); result != ncclSuccess)
      throw Error(ErrorKind::fault,
                  fmt::format("{} in group '{}': NCCL can't make an id: {}: {}", describe(call), name(),
                              nccl_.GetErrorString(result), nccl_.GetLastError(nullptr)),
                  call.place);
    return id;
  }
  static Tensor tensor_of(ncclUniqueId& id) { return {&id, DType::u8, {static_cast<int64_t>(sizeof id)}}; }

  NcclLink& everyone(const CommCall& call) {
    flights_->check_alive(call);
    // Moves nothing; where the host's group compares the order of calls, it compares this one.
    const Tensor nothing(nullptr, DType::u8, {0});
    host_all_gather(call, nothing, nothing).wait();
    if (!everyone_) {
      prepare(call);
      ncclUniqueId id{};
      if (rank() == 0) id = new_id(call);
      host_broadcast({CommOp::broadcast, DType::u8, sizeof id, 0, call.sequence, call.place}, tensor_of(id),
                     0)
          .wait();
      everyone_ = std::make_unique<NcclLink>(nccl_, flights_, device_, name(), id, size(), rank(), call);
    }
    return *everyone_;
  }

  /// From one rank to another, of which one is this; in the link the sender is rank 0.
  NcclLink& direction(const CommCall& call, int from, int to) {
    flights_->check_alive(call);
    const auto link = directions_.find({from, to});
    check(
        link != directions_.end(),
        "{} in group '{}': over NCCL, messages go where the group's route (DeviceMessages::route) says: each "
        "rank's to the one {} after it{}",
        describe(call), name(), messages_.route.step, messages_.route.around ? ", over the ends, too" : "");
    return *link->second;
  }

  // Links for messages are not made by the first message. A host that comes to it waits for the other, which
  // may need a message of this rank before it comes: one that is enqueued behind those that are under way, or
  // not yet at all. So they are made with the group, before there is anything under way, and used once, for
  // NCCL connects two ranks (and allocates what that takes) at their first message.
  void meet(const CommCall& call) {
    const int step = messages_.route.step;
    if (step == 0 || !directions_.empty()) return;
    prepare(call);
    struct Id {
      ncclUniqueId id;
    };
    Id mine{new_id(call)};  // of what this rank sends
    std::vector<Id> ids(static_cast<size_t>(size()));
    const Tensor all(ids.data(), DType::u8, {size() * static_cast<int64_t>(sizeof mine)});
    void* byte = device_.workspace();  // what it is does not matter
    host_all_gather({CommOp::all_gather, DType::u8, all.numel(), 0, call.sequence, call.place},
                    tensor_of(mine.id), all)
        .wait();
    // All members take the messages in one order, so that none waits for one that waits for it.
    for (int from = 0; from < size(); ++from) {
      const bool over_the_end = from + step < 0 || from + step >= size();
      const int to = (from + step + size()) % size();
      if ((from != rank() && to != rank()) || (over_the_end && !messages_.route.around)) continue;
      auto link =
          std::make_unique<NcclLink>(nccl_, flights_, device_, name(), ids[static_cast<size_t>(from)].id, 2,
                                     from == rank() ? 0 : 1, call);
      run_one(*link, call, [&] {
        return from == rank() ? nccl_.Send(byte, 1, ncclUint8, 1, link->comm(), link->stream())
                              : nccl_.Recv(byte, 1, ncclUint8, 0, link->comm(), link->stream());
      }).wait();
      directions_[{from, to}] = std::move(link);
    }
  }
  void do_barrier(const CommCall& call) override {
    OverHost::do_barrier(call);
    meet(call);
  }

  /// Whether a reduction goes around NCCL's own.
  bool by_rank_order(DType dtype, ReduceOp op) const {
    const bool real = dtype == DType::f32 || dtype == DType::f64;
    return dtype == DType::bf16 || (real && (op == ReduceOp::max || messages_.rank_order));
  }
  /// Elements of a rank's piece of what is exchanged at a time.
  int64_t piece_of(DType dtype) const {
    return static_cast<int64_t>(NcclLink::scratch_bytes() / size_of(dtype)) / size();
  }

  /// Every rank gets its piece of the others' inputs and adds them up: piece r of them, of counts[r]
  /// elements, is at in + begins[r].
  void sum_pieces(NcclLink& link, const CommCall& call, const char* in, const std::vector<int64_t>& begins,
                  const std::vector<int64_t>& counts, char* result) {
    const auto width = static_cast<int64_t>(size_of(call.dtype));
    const size_t me = static_cast<size_t>(rank());
    char* pieces = static_cast<char*>(link.scratch());
    link.begin(call);
    for (size_t r = 0; r < counts.size(); ++r) {
      if (r == me) continue;
      const int peer = static_cast<int>(r);
      if (counts[r])
        link.check(nccl_.Send(in + begins[r] * width, static_cast<size_t>(counts[r]), nccl_type(call.dtype),
                              peer, link.comm(), link.stream()),
                   call);
      if (counts[me])
        link.check(nccl_.Recv(pieces + peer * piece_of(call.dtype) * width, static_cast<size_t>(counts[me]),
                              nccl_type(call.dtype), peer, link.comm(), link.stream()),
                   call);
    }
    link.end(call);
    if (counts[me])
      add_(link.stream(), {call.dtype, static_cast<ReduceOp>(call.detail), pieces, piece_of(call.dtype),
                           counts[me], in + begins[me] * width, rank(), size(), result});
  }

  /// Each rank's piece of `out` to all others.
  void spread_pieces(NcclLink& link, const CommCall& call, char* out, const std::vector<int64_t>& begins,
                     const std::vector<int64_t>& counts) {
    const auto width = static_cast<int64_t>(size_of(call.dtype));
    const size_t me = static_cast<size_t>(rank());
    link.begin(call);
    for (size_t r = 0; r < counts.size(); ++r) {
      if (r == me) continue;
      const int peer = static_cast<int>(r);
      if (counts[me])
        link.check(nccl_.Send(out + begins[me] * width, static_cast<size_t>(counts[me]),
                              nccl_type(call.dtype), peer, link.comm(), link.stream()),
                   call);
      if (counts[r])
        link.check(nccl_.Recv(out + begins[r] * width, static_cast<size_t>(counts[r]), nccl_type(call.dtype),
                              peer, link.comm(), link.stream()),
                   call);
    }
    link.end(call);
  }

  // In place is safe: an input's segment has been taken by all when the first exchange is done.
  void all_reduce_in_order(NcclLink& link, const CommCall& call, const char* in, char* out) {
    const size_t n = static_cast<size_t>(size());
    const int64_t segment = piece_of(call.dtype) * size();
    const auto width = static_cast<int64_t>(size_of(call.dtype));
    std::vector<int64_t> begins(n), counts(n);
    for (int64_t first = 0; first < call.count; first += segment) {
      const int64_t length = std::min(segment, call.count - first);
      for (int r = 0; r < size(); ++r) {
        begins[static_cast<size_t>(r)] = first + part_begin(length, size(), r);
        counts[static_cast<size_t>(r)] = part_begin(length, size(), r + 1) - part_begin(length, size(), r);
      }
      sum_pieces(link, call, in, begins, counts, out + begins[static_cast<size_t>(rank())] * width);
      spread_pieces(link, call, out, begins, counts);
    }
  }

  void reduce_scatter_in_order(NcclLink& link, const CommCall& call, const char* in, char* out) {
    const size_t n = static_cast<size_t>(size());
    const int64_t part = call.count / size(), piece = piece_of(call.dtype);
    const auto width = static_cast<int64_t>(size_of(call.dtype));
    std::vector<int64_t> begins(n), counts(n);
    for (int64_t first = 0; first < part; first += piece) {
      for (size_t r = 0; r < n; ++r) {
        begins[r] = static_cast<int64_t>(r) * part + first;
        counts[r] = std::min(piece, part - first);
      }
      sum_pieces(link, call, in, begins, counts, out + first * width);
    }
  }

  Pending device_all_reduce(const CommCall& call, const Tensor& in, const Tensor& out, ReduceOp op) override {
    NcclLink& link = everyone(call);
    if (call.count == 0) return {};
    if (!by_rank_order(call.dtype, op))
      return run_one(link, call, [&] {
        return nccl_.AllReduce(in.raw(), out.raw(), static_cast<size_t>(call.count), nccl_type(call.dtype),
                               nccl_op(op), link.comm(), link.stream());
      });
    link.scratch();
    return run(link, call, [&] {
      all_reduce_in_order(link, call, static_cast<const char*>(in.raw()), static_cast<char*>(out.raw()));
    });
  }

  Pending device_reduce_scatter(const CommCall& call, const Tensor& in, const Tensor& out,
                                ReduceOp op) override {
    NcclLink& link = everyone(call);
    if (call.count == 0) return {};
    if (!by_rank_order(call.dtype, op))
      return run_one(link, call, [&] {
        return nccl_.ReduceScatter(in.raw(), out.raw(), static_cast<size_t>(out.numel()),
                                   nccl_type(call.dtype), nccl_op(op), link.comm(), link.stream());
      });
    link.scratch();
    return run(link, call, [&] {
      reduce_scatter_in_order(link, call, static_cast<const char*>(in.raw()), static_cast<char*>(out.raw()));
    });
  }

  Pending device_all_gather(const CommCall& call, const Tensor& in, const Tensor& out) override {
    NcclLink& link = everyone(call);
    if (call.count == 0) return {};
    return run_one(link, call, [&] {
      return nccl_.AllGather(in.raw(), out.raw(), static_cast<size_t>(in.numel()), nccl_type(call.dtype),
                             link.comm(), link.stream());
    });
  }

  Pending device_broadcast(const CommCall& call, const Tensor& inout, int root) override {
    NcclLink& link = everyone(call);
    if (call.count == 0) return {};
    return run_one(link, call, [&] {
      return nccl_.Broadcast(inout.raw(), inout.raw(), static_cast<size_t>(call.count), nccl_type(call.dtype),
                             root, link.comm(), link.stream());
    });
  }

  Pending device_send(const CommCall& call, const Tensor& in, int to) override {
    NcclLink& link = direction(call, rank(), to);
    if (call.count == 0) return {};
    return run_one(link, call, [&] {
      return nccl_.Send(in.raw(), static_cast<size_t>(call.count), nccl_type(call.dtype), 1, link.comm(),
                        link.stream());
    });
  }

  Pending device_recv(const CommCall& call, const Tensor& out, int from) override {
    NcclLink& link = direction(call, from, rank());
    if (call.count == 0) return {};
    return run_one(link, call, [&] {
      return nccl_.Recv(out.raw(), static_cast<size_t>(call.count), nccl_type(call.dtype), 0, link.comm(),
                        link.stream());
    });
  }

  std::unique_ptr<Communicator> take(std::unique_ptr<Communicator> host) override {
    if (host->size() == 1) return make_alone(*host, {&device_, nullptr});
    DeviceMessages messages = messages_;
    messages.route = {};
    return std::make_unique<NcclCommunicator>(std::move(host), device_, messages, add_, nccl_);
  }

  const NcclLibrary& nccl_;
  CudaDevice& device_;
  DeviceMessages messages_;
  AddPieces add_;
  std::shared_ptr<Flights> flights_;
  std::unique_ptr<NcclLink> everyone_;
  std::map<std::pair<int, int>, std::unique_ptr<NcclLink>> directions_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> group, CudaDevice& device,
                                                     const DeviceMessages& messages, AddPieces add) {
  const NcclLibrary* nccl = nccl_library(nullptr);
  check(nccl != nullptr, "group '{}' over NCCL, which is not open", group->name());
  std::unique_ptr<Communicator> made =
      std::make_unique<NcclCommunicator>(std::move(group), device, messages, add, *nccl);
  if (messages.route.step != 0) made->barrier();  // an operation, so that a rank that does not come is named
  return made;
}

}  // namespace triax
