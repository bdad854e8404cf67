#include "checkpoint/background.h"

#include <ctime>

namespace triax {
namespace {

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

BackgroundSave::BackgroundSave(Communicator& world, const SaveRequest& request)
    : step_(request.step), save_(world, request) {
  start("write shard", &Save::write);
}

BackgroundSave::~BackgroundSave() {
  save_.give_up();
  if (thread_.joinable()) thread_.join();
}

void BackgroundSave::start(const char* name, void (Save::*phase)()) {
  idle_ = false;
  thread_ = std::thread([this, name, phase] {
    const auto begin = std::chrono::steady_clock::now();
    (save_.*phase)();
    cpu_seconds_ += thread_cpu_seconds();
    phases_.push_back({name, begin, std::chrono::steady_clock::now()});
    idle_ = true;
  });
}

std::optional<SaveResult> BackgroundSave::advance() {
  if (thread_.joinable()) thread_.join();
  if (phase_++ == 0) {
    save_.exchange();
    start("make it a checkpoint", &Save::complete);
    return std::nullopt;
  }
  return save_.finish();
}

SaveResult BackgroundSave::finish() {
  for (;;)
    if (auto result = advance()) return *result;
}

}  // namespace triax
