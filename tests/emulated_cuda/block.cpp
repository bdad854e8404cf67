#include "block.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "fiber.h"

namespace emulated_cuda {

thread_local Thread* t_thread = nullptr;
thread_local Block t_block;

namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned char kCanary = 0xC9;
constexpr size_t kCanaryBytes = 64;

enum class State { fresh, ready, at_barrier, in_exchange, done };

// What the lanes of one mask put down for each other. Two places, used by turns: a lane that has not read the
// last exchange yet keeps the next one from being complete, so the one after it cannot begin.
struct Exchange {
  unsigned mask, arrived = 0, turn = 0;
  int line = 0;
  Slot slots[2][kWarp];
};

struct Warp {
  std::vector<std::unique_ptr<Exchange>> exchanges;  // one per mask that was used; nearly always one
};

struct Runner : Thread {
  State state = State::fresh;
  Fiber* fiber = nullptr;
  int line = 0;  // of the barrier where it waits
};

thread_local Order t_order = Order::ascending;
thread_local unsigned t_seed = 1;

class Grid {
 public:
  Grid(const char* name, dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(void*), void* arguments)
      : name_(name), grid_(grid), block_(block), shared_bytes_(shared_bytes) {
    body_ = [thread, arguments] { thread(arguments); };
    const size_t threads = size_t{block.x} * block.y * block.z;
    runners_.resize(threads);
    warps_.resize((threads + kWarp - 1) / kWarp);
    order_.resize(threads);
    std::iota(order_.begin(), order_.end(), 0u);
    if (t_order == Order::descending) std::reverse(order_.begin(), order_.end());
    // On the heap and of the exact size, so that the address sanitizer sees a read beyond it, too.
    shared_ =
        static_cast<unsigned char*>(std::aligned_alloc(128, (shared_bytes + kCanaryBytes + 127) / 128 * 128));
  }
  ~Grid() { std::free(shared_); }

  void run() {
    const size_t blocks = size_t{grid_.x} * grid_.y * grid_.z;
    std::mt19937 random(t_seed);
    std::vector<size_t> order;
    if (t_order == Order::shuffled) {
      order.resize(blocks);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
    }
    for (size_t i = 0; i < blocks; ++i) {
      size_t at = t_order == Order::descending ? blocks - 1 - i : i;
      if (t_order == Order::shuffled) {
        at = order[i];
        std::shuffle(order_.begin(), order_.end(), random);
      }
      const auto x = static_cast<unsigned>(at % grid_.x), y = static_cast<unsigned>(at / grid_.x % grid_.y),
                 z = static_cast<unsigned>(at / grid_.x / grid_.y);
      run_block({x, y, z});
    }
  }

  void barrier(int line) {
    Runner& self = *static_cast<Runner*>(t_thread);
    self.line = line;
    if (ended_ > 0) report("some threads have ended while others wait at a __syncthreads", self);
    for (const Runner& other : runners_)
      if (other.state == State::at_barrier && other.line != line)
        report("threads of a block wait at __syncthreads in different lines", self);
    if (++waiting_ == runners_.size()) {
      waiting_ = 0;
      for (Runner& other : runners_)
        if (other.state == State::at_barrier) other.state = State::ready;
      return;
    }
    self.state = State::at_barrier;
    wait(self);
  }

  Slot* exchange(unsigned mask, const void* data, size_t bytes, int line, void (*combine)(Slot*)) {
    Runner& self = *static_cast<Runner*>(t_thread);
    const unsigned lane = self.linear % kWarp;
    self.line = line;
    if (bytes > sizeof(Slot)) report("an exchange of too many bytes", self);
    if (!(mask >> lane & 1u)) report("a lane is not in the mask of its own exchange", self);
    Warp& warp = warps_[self.linear / kWarp];
    auto found = std::find_if(warp.exchanges.begin(), warp.exchanges.end(),
                              [&](const auto& e) { return e->mask == mask; });
    if (found == warp.exchanges.end()) {
      for (unsigned l = 0; l < kWarp; ++l)
        if ((mask >> l & 1u) && self.linear / kWarp * kWarp + l >= runners_.size())
          report("the mask of an exchange names lanes that the block does not have", self);
      warp.exchanges.push_back(std::make_unique<Exchange>());
      warp.exchanges.back()->mask = mask;
      found = warp.exchanges.end() - 1;
    }
    Exchange& e = **found;
    if (e.arrived == 0) e.line = line;
    if (e.line != line) report("lanes of a warp exchange values in different lines", self);
    Slot* slots = e.slots[e.turn];
    std::memcpy(&slots[lane], data, bytes);
    e.arrived |= 1u << lane;
    if (e.arrived != mask) {
      self.state = State::in_exchange;
      wait(self);
      return slots;
    }
    if (combine) combine(slots);
    e.arrived = 0;
    e.turn ^= 1u;
    const size_t first = self.linear / kWarp * kWarp;
    for (unsigned l = 0; l < kWarp; ++l)
      if ((mask >> l & 1u) && l != lane) runners_[first + l].state = State::ready;
    return slots;
  }

  [[noreturn]] void report(const char* what, const Runner& self) const {
    const uint3 b = t_block.index, t = self.index;
    std::fprintf(
        stderr,
        "emulated CUDA, kernel %s<<<(%u,%u,%u), (%u,%u,%u)>>>: %s\n  block (%u,%u,%u), thread (%u,%u,%u), "
        "line %d\n",
        name_, grid_.x, grid_.y, grid_.z, block_.x, block_.y, block_.z, what, b.x, b.y, b.z, t.x, t.y, t.z,
        self.line);
    std::abort();
  }

 private:
  void prepare(uint3 index) {
    t_block = {index, grid_, block_, shared_, shared_bytes_, this};
    // What was there before a block is nobody's business: NaN, whichever way it is read.
    std::memset(shared_, 0xFF, shared_bytes_);
    std::memset(shared_ + shared_bytes_, kCanary, kCanaryBytes);
    waiting_ = ended_ = 0;
    for (Warp& warp : warps_)
      for (auto& exchange : warp.exchanges) exchange->arrived = 0;
    for (size_t i = 0; i < runners_.size(); ++i) {
      Runner& r = runners_[i];
      r.linear = static_cast<unsigned>(i);
      r.index = {r.linear % block_.x, r.linear / block_.x % block_.y, r.linear / block_.x / block_.y};
      r.state = State::fresh;
      r.fiber = nullptr;
    }
  }

  void run_block(uint3 index) {
    prepare(index);
    while (ended_ < runners_.size()) {
      bool moved = false;
      for (const unsigned i : order_) {
        Runner& r = runners_[i];
        if (r.state != State::fresh && r.state != State::ready) continue;
        moved = true;
        step(r);
      }
      if (!moved) {
        for (const Runner& r : runners_)
          if (r.state == State::in_exchange)
            report("a warp's exchange waits for lanes that have gone elsewhere", r);
        for (const Runner& r : runners_)
          if (r.state != State::done) report("threads wait for each other for ever", r);
      }
    }
    for (size_t i = 0; i < kCanaryBytes; ++i)
      if (shared_[shared_bytes_ + i] != kCanary)
        report("a write beyond the dynamic shared memory", runners_[0]);
  }

  // Until it waits or ends. Threads that never wait use one fiber after the other.
  void step(Runner& r) {
    t_thread = &r;
    if (r.state == State::fresh) {
      if (idle_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>());
        idle_.push_back(fibers_.back().get());
      }
      r.fiber = idle_.back();
      idle_.pop_back();
      r.state = State::done;  // unless it waits
      r.fiber->start(body_);
    } else {
      r.state = State::done;
      r.fiber->resume();
    }
    if (r.state == State::done) {
      ++ended_;
      idle_.push_back(r.fiber);
      if (waiting_ > 0) report("some threads have ended while others wait at a __syncthreads", r);
    }
  }

  void wait(Runner& self) {
    self.fiber->suspend();
    t_thread = &self;
  }

  const char* name_;
  dim3 grid_, block_;
  size_t shared_bytes_, waiting_ = 0, ended_ = 0;
  std::function<void()> body_;
  std::vector<Runner> runners_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;
  unsigned char* shared_;
  // Stacks outlive the grid: mapping them anew for each launch would be most of a small kernel's time.
  static thread_local std::vector<std::unique_ptr<Fiber>> fibers_;
  static thread_local std::vector<Fiber*> idle_;
};

thread_local std::vector<std::unique_ptr<Fiber>> Grid::fibers_;
thread_local std::vector<Fiber*> Grid::idle_;

}  // namespace

void set_order(Order order, unsigned seed) {
  t_order = order;
  t_seed = seed;
}

void run_grid(const char* name, dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(void*),
              void* arguments) {
  Grid(name, grid, block, shared_bytes, thread, arguments).run();
}

void sync_threads(int line) {
  static_cast<Grid*>(t_block.grid_object)->barrier(line);
}
Slot* exchange(unsigned mask, const void* data, size_t bytes, int line, void (*combine)(Slot*)) {
  return static_cast<Grid*>(t_block.grid_object)->exchange(mask, data, bytes, line, combine);
}
void fail_thread(const char* what) {
  static_cast<Grid*>(t_block.grid_object)->report(what, *static_cast<Runner*>(t_thread));
}

}  // namespace emulated_cuda
