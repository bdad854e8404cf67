// One rank of an MPI job whose groups are connected by NCCL, or by what stands for it (tests/emulated_cuda),
// on GPUs of the emulated runtime: results beside those of the host's group, and failures. Started by mpirun
// from ctest.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "comm/device_link.h"
#include "core/arena.h"
#include "core/bf16.h"
#include "core/error.h"
#include "parallel/backend.h"

namespace triax {
namespace {

using Bytes = std::vector<char>;
const std::vector<DType> all_types = {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8};

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Numbers that do not add up exactly in floats.
void put(DType dtype, void* to, int64_t i, double x) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(to)[i] = static_cast<float>(x);
      break;
    case DType::bf16:
      static_cast<bf16*>(to)[i] = round_bf16(static_cast<float>(x));
      break;
    case DType::f64:
      static_cast<double*>(to)[i] = x;
      break;
    case DType::i32:
      static_cast<int32_t*>(to)[i] = static_cast<int32_t>(x * 2e6);
      break;
    case DType::i64:
      static_cast<int64_t*>(to)[i] = static_cast<int64_t>(x * 1e15);
      break;
    case DType::u8:
      static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(static_cast<int64_t>(x * 100) & 0xff);
      break;
  }
}

double get(DType dtype, const void* from, int64_t i) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(from)[i];
    case DType::f64:
      return static_cast<const double*>(from)[i];
    default:
      return 0;
  }
}

Bytes values(DType dtype, int64_t elements, int rank) {
  Bytes bytes(static_cast<size_t>(elements) * size_of(dtype));
  for (int64_t i = 0; i < elements; ++i)
    put(dtype, bytes.data(), i, static_cast<double>((i * 7919 + rank * 104729) % 1000003) * 1.7e-3 - 800);
  return bytes;
}

const MessageRoute to_next{1, true}, to_previous{-1, true};

/// Runs operations on one group, on tensors of the host or of a device, and keeps what they leave. Messages
/// go to the next rank in the group itself, to the previous one in `back` (its other direction); without it
/// there are none.
class Exercise {
 public:
  Exercise(Communicator& group, Device& device, DType dtype, int64_t part, Communicator* back = nullptr)
      : group_(group),
        back_(back),
        device_(device),
        dtype_(dtype),
        elements_(part * group.size()),
        arena_("tensors", device),
        a_(arena_.declare("a", {elements_}, dtype)),
        b_(arena_.declare("b", {elements_}, dtype)),
        all_(arena_.declare("all", {elements_ * group.size()}, dtype)) {
    arena_.commit();
  }

  std::vector<std::pair<std::string, Bytes>> run() {
    const Tensor x = arena_[a_], y = arena_[b_], all = arena_[all_];
    const int n = group_.size(), me = group_.rank();
    const Bytes mine = values(dtype_, elements_, me);
    const auto fill = [&](const Tensor& t) { device_.write(t.raw(), mine.data(), mine.size()); };
    const Tensor part = x.rows(me * (elements_ / n), elements_ / n), front = y.rows(0, elements_ / n);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
      const std::string name = op == ReduceOp::sum ? "sum" : "max";
      fill(x);
      group_.all_reduce(x, y, op).wait();
      keep("all_reduce " + name, y);
      group_.all_reduce(x, x, op).wait();
      keep("all_reduce in place " + name, x);
      fill(x);
      // What waits for the second also follows the first.
      Pending gathered = group_.all_gather(x, all);
      group_.reduce_scatter(x, front, op).wait();
      keep("reduce_scatter " + name, front);
      gathered.wait();
      keep("all_gather", all);
      group_.reduce_scatter(x, part, op).wait();
      keep("reduce_scatter in place " + name, part);
      group_.all_gather(part, x).wait();
      keep("all_gather in place " + name, x);
    }
    fill(x);
    group_.broadcast(x, n - 1).wait();
    keep("broadcast", x);
    if (back_) messages(x, y);
    return std::move(results_);
  }

 private:
  // Around the ring, every rank sends before it receives: neither waits for the other.
  void messages(const Tensor& x, const Tensor& y) {
    const int n = group_.size(), next = (group_.rank() + 1) % n, before = (group_.rank() + n - 1) % n;
    const Bytes mine = values(dtype_, elements_, group_.rank());
    device_.write(x.raw(), mine.data(), mine.size());
    for (int i = 0; i < 3; ++i) {
      Pending sent = group_.send(x, next);
      group_.recv(y, before).wait();
      sent.wait();
      device_.copy(x.raw(), y.raw(), y.bytes());
    }
    keep("messages", y);
    Pending sent = back_->send(x, before);
    back_->recv(y, next).wait();
    sent.wait();
    keep("messages the other way", y);
  }
  void keep(const std::string& name, const Tensor& t) {
    Bytes bytes(t.bytes());
    device_.read(bytes.data(), t.raw(), t.bytes());
    results_.emplace_back(name, std::move(bytes));
  }

  Communicator& group_;
  Communicator* back_;
  Device& device_;
  DType dtype_;
  int64_t elements_;
  Arena arena_;
  int a_, b_, all_;
  std::vector<std::pair<std::string, Bytes>> results_;
};

/// All of NCCL's group beside the host's: equal bits, but for sums of f32 and f64 without rank order, which
/// are close and, over more than two ranks, other ones.
void compare(Communicator& world, bool rank_order, int64_t part, const std::vector<DType>& types) {
  const Backend cpu = make_backend("cpu", 1, 0), gpu = make_backend("cuda", 1, world.rank());
  auto host = world.split(0, "host");
  auto group = on_device(world.split(0, "tp"), gpu.memory(), {"auto", rank_order, to_next});
  auto back = on_device(world.split(0, "back"), gpu.memory(), {"auto", rank_order, to_previous});
  expect(group->transport().rfind("NCCL 2.", 0) == 0, "transport is " + group->transport());
  for (const DType dtype : types) {
    const auto there = Exercise(*group, *gpu.device, dtype, part, back.get()).run();
    const auto here = Exercise(*host, *cpu.device, dtype, part, host.get()).run();
    bool other_bits = false;
    for (size_t i = 0; i < here.size(); ++i) {
      const std::string what = fmt::format("{} of {}", here[i].first, name_of(dtype));
      const Bytes &a = there[i].second, &b = here[i].second;
      expect(a.size() == b.size(), what + ": size");
      if (a == b) continue;
      const bool may = !rank_order && (dtype == DType::f32 || dtype == DType::f64) &&
                       what.find("sum") != std::string::npos;
      expect(may, what + ": other bits than the host's");
      other_bits = true;
      for (int64_t k = 0; k < static_cast<int64_t>(a.size() / size_of(dtype)); ++k)
        expect(std::abs(get(dtype, a.data(), k) - get(dtype, b.data(), k)) < 1e-3, what);
    }
    // Else the rank order above would prove nothing.
    if (dtype == DType::f32 && !rank_order && world.size() > 2)
      expect(other_bits, "NCCL's sums have the bits of the rank order");
  }
}

void nan_is_the_maximum(Communicator& world) {
  const Backend gpu = make_backend("cuda", 1, world.rank());
  auto group = on_device(world.split(0, "tp"), gpu.memory());
  Arena arena("tensors", *gpu.device);
  const int a = arena.declare("a", {5}, DType::f32);
  arena.commit();
  std::vector<float> x(5, static_cast<float>(world.rank()));
  if (world.rank() == 0) x[3] = std::numeric_limits<float>::quiet_NaN();
  gpu.device->write(arena[a].raw(), x.data(), 20);
  group->all_reduce(arena[a], arena[a], ReduceOp::max).wait();
  gpu.device->read(x.data(), arena[a].raw(), 20);
  expect(std::isnan(x[3]) && x[2] == static_cast<float>(world.size() - 1), "the maximum with NaN");
}

// Tensors of the host, barriers and groups of this group's.
void beside(Communicator& world) {
  const Backend gpu = make_backend("cuda", 1, world.rank());
  auto group = on_device(world.split(0, "dp"), gpu.memory());
  {
    const Communicator::HostTensors on_host(*group);
    int64_t number = 1;
    group->all_reduce(Tensor::of(&number, {1}), Tensor::of(&number, {1}), ReduceOp::sum).wait();
    expect(number == world.size(), "a tensor of the host");
  }
  group->barrier();
  auto pairs = group->split(world.rank() / 2, "pair");
  Exercise(*pairs, *gpu.device, DType::f32, 7).run();
  auto alone = group->split(world.rank(), "alone");
  expect(alone->size() == 1 && alone->transport().empty(), "a group of one");
  Exercise one(*alone, *gpu.device, DType::i64, 7);
  // Enqueued is not yet done: the recorder learns it from the device.
  gpu.device->synchronize();
  for (const Recorder::Call& call : group->recorder().recent())
    expect(call.done, describe(call) + " is not done after synchronize()");
}

void suite(Communicator& world) {
  compare(world, false, 331, all_types);
  compare(world, true, 331, all_types);
  nan_is_the_maximum(world);
  beside(world);
}

// More than the scratch memory takes at a time.
void large(Communicator& world) {
  compare(world, true, 350003, {DType::f64});
}

void shared(Communicator& world) {
  const Backend gpu = make_backend("cuda", 1, world.rank());
  auto group = on_device(world.split(0, "tp"), gpu.memory());
  if (world.rank() == 0) std::printf("transport: %s\n", group->transport().c_str());
  Exercise(*group, *gpu.device, DType::f32, 100).run();
  auto strict = on_device(world.split(0, "tp"), gpu.memory(), {"nccl", false});
}

void connect(Communicator& world) {
  const Backend gpu = make_backend("cuda", 1, world.rank());
  auto group = on_device(world.split(0, "tp"), gpu.memory());
  Exercise(*group, *gpu.device, DType::f32, 100).run();
}

// The stages of 1F1B: a stage sends what the next one takes only when it has sent its first gradient, to a
// stage that meanwhile is at its own first one. More bytes than what carries them has room for.
void stages(Communicator& world) {
  const Backend gpu = make_backend("cuda", 1, world.rank());
  auto forward = on_device(world.split(0, "pp"), gpu.memory(), {"auto", false, {1, false}});
  auto backward = on_device(world.split(0, "pp-back"), gpu.memory(), {"auto", false, {-1, false}});
  const int stage = world.rank(), last = world.size() - 1, micro_batches = 2 * world.size();
  const int64_t count = 50000;
  Arena arena("tensors", *gpu.device);
  const int in = arena.declare("in", {micro_batches, count}, DType::f32),
            out = arena.declare("out", {micro_batches, count}, DType::f32);
  arena.commit();
  std::vector<Pending> sent;
  // Each stage sends on what it has got; the last one's activations come back as gradients.
  const auto pass = [&](Communicator& group, int from, int to, int micro_batch, int buffer) {
    const Tensor t = arena[buffer].rows(micro_batch, 1);
    if (from < 0 || from > last) {
      const std::vector<float> x(static_cast<size_t>(count), static_cast<float>(micro_batch + 1));
      if (&group == forward.get())
        gpu.device->write(t.raw(), x.data(), t.bytes());
      else
        gpu.device->copy(t.raw(), arena[in].rows(micro_batch, 1).raw(), t.bytes());
    } else {
      group.recv(t, from).wait();
    }
    if (to >= 0 && to <= last) sent.push_back(group.send(t, to));
  };
  const int ahead = last - stage;
  for (int step = 0; step < micro_batches + ahead; ++step) {
    if (step < micro_batches) pass(*forward, stage - 1, stage + 1, step, in);
    if (step >= ahead) pass(*backward, stage + 1, stage - 1, step - ahead, out);
  }
  for (Pending& pending : sent) pending.wait();
  std::vector<float> x(static_cast<size_t>(count));
  for (int m = 0; m < micro_batches; ++m) {
    const Tensor t = arena[out].rows(m, 1);
    gpu.device->read(x.data(), t.raw(), t.bytes());
    expect(x.front() == static_cast<float>(m + 1) && x.back() == x.front(), "what came back");
  }
  // Only what sends was made: nobody goes over the ends, or the other way.
  if (stage != 0) return;
  try {
    forward->recv(arena[in].rows(0, 1), last).wait();
  } catch (const Error& error) {
    expect(std::string(error.what()).find("to the one 1 after it") != std::string::npos, error.what());
    return;
  }
  expect(false, "a message over the end");
}

// With CommOptions::check_order: another operation on one rank is reported.
void order(Communicator& world) {
  const Backend gpu = make_backend("cuda", 1, world.rank());
  auto group = on_device(world.split(0, "tp"), gpu.memory());
  Arena arena("tensors", *gpu.device);
  const int a = arena.declare("a", {world.rank() == 2 ? 9 : 8}, DType::f32);
  arena.commit();
  group->all_reduce(arena[a], arena[a], ReduceOp::sum).wait();
  gpu.device->synchronize();
}

// A rank that fails while an operation of others waits for it.
void abort(Communicator& world) {
  const Backend gpu = make_backend("cuda", 1, world.rank());
  auto group = on_device(world.split(0, "tp"), gpu.memory());
  Arena arena("tensors", *gpu.device);
  const int a = arena.declare("a", {1000}, DType::f32);
  arena.commit();
  group->all_reduce(arena[a], arena[a], ReduceOp::sum).wait();
  if (world.rank() == 1) {
    gpu.device->synchronize();
    const Pending pending = group->all_reduce(arena[a], arena[a], ReduceOp::sum);
    fail("out of paper");
  }
  group->all_reduce(arena[a], arena[a], ReduceOp::sum).wait();
  group->all_reduce(arena[a], arena[a], ReduceOp::sum).wait();
  gpu.device->synchronize();
}

}  // namespace
}  // namespace triax

int main(int argc, char** argv) {
  using namespace triax;
  const std::string mode = argc > 1 ? argv[1] : "suite";
  CommOptions options;
  options.timeout = std::chrono::seconds(60);
  options.check_order = mode == "order";
  int rank = -1, size = -1;
  std::unique_ptr<MpiWorld> mpi;
  try {
    expect(started_by_mpi(&rank, &size), "mpirun is not recognised");
    mpi = make_mpi_world(options);
    const auto world = mpi->communicator();
    if (mode == "suite")
      suite(*world);
    else if (mode == "large")
      large(*world);
    else if (mode == "shared")
      shared(*world);
    else if (mode == "stages")
      stages(*world);
    else if (mode == "order")
      order(*world);
    else if (mode == "abort")
      abort(*world);
    else
      connect(*world);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    if (mpi) mpi->abort(1);
    return 1;
  }
  return 0;
}
