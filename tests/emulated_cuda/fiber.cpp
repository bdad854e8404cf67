#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated_cuda {

namespace {
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStack = size_t{1} << 18;
#else
constexpr size_t kStack = size_t{1} << 16;
#endif
constexpr size_t kGuard = 4096;  // below each stack, so that an overflow is a fault and no riddle
}  // namespace

#if defined(__x86_64__)
// ucontext saves the signal mask by a call of the system at each switch; what the ABI asks to be kept is six
// registers and the stack.
extern "C" void emulated_cuda_switch(void** save, void* load);
asm(R"(
.text
.type emulated_cuda_switch, @function
.globl emulated_cuda_switch
.hidden emulated_cuda_switch
emulated_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_cuda_switch, .-emulated_cuda_switch
)");
#endif

struct Fiber::Machine {
  char* memory;
  const std::function<void()>* body = nullptr;
#if defined(__x86_64__)
  void *own = nullptr, *other = nullptr;
#else
  ucontext_t own, other;
#endif
  // Of the sanitizer: its stand-ins for local variables, and the stack that is returned to.
  void *fake_own = nullptr, *fake_other = nullptr;
  const void* other_bottom = nullptr;
  size_t other_size = 0;

  Machine() {
    memory = static_cast<char*>(
        mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory == MAP_FAILED) std::abort();
    mprotect(memory, kGuard, PROT_NONE);
    prepare();
  }
  ~Machine() {
    munmap(memory, kStack + kGuard);
  }
  char* bottom() const {
    return memory + kGuard;
  }

  void prepare();
  void swap_in();
  void swap_out();

  void enter() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_other, bottom(), kStack);
#endif
    swap_in();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_other, nullptr, nullptr);
#endif
  }
  void leave() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_own, other_bottom, other_size);
#endif
    swap_out();
    arrived();
  }
  void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_own, &other_bottom, &other_size);
#endif
  }
  [[noreturn]] void run() {
    arrived();
    for (;;) {
      (*body)();
      leave();
    }
  }
};

namespace {
thread_local void* t_entering = nullptr;  // the machine that runs for the first time
}

#if defined(__x86_64__)
void Fiber::Machine::prepare() {
  // As if it had been switched away from at the entry of `first`: six registers, then the address to return
  // to. At a function's first instruction the stack is 8 below a multiple of 16.
  struct First {
    [[noreturn]] static void run() { static_cast<Machine*>(t_entering)->run(); }
  };
  auto** top = reinterpret_cast<void**>(bottom() + kStack);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&First::run);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  own = top;
}
void Fiber::Machine::swap_in() {
  t_entering = this;
  emulated_cuda_switch(&other, own);
}
void Fiber::Machine::swap_out() {
  emulated_cuda_switch(&own, other);
}
#else
void Fiber::Machine::prepare() {
  struct First {
    static void run() { static_cast<Machine*>(t_entering)->run(); }
  };
  getcontext(&own);
  own.uc_stack.ss_sp = bottom();
  own.uc_stack.ss_size = kStack;
  own.uc_link = nullptr;
  makecontext(&own, &First::run, 0);
}
void Fiber::Machine::swap_in() {
  t_entering = this;
  swapcontext(&other, &own);
}
void Fiber::Machine::swap_out() {
  swapcontext(&own, &other);
}
#endif

Fiber::Fiber() : machine_(std::make_unique<Machine>()) {}
Fiber::~Fiber() = default;

void Fiber::start(const std::function<void()>& body) {
  machine_->body = &body;
  machine_->enter();
}
void Fiber::resume() {
  machine_->enter();
}
void Fiber::suspend() {
  machine_->leave();
}

}  // namespace emulated_cuda
