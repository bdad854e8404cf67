#include <algorithm>
#include <exception>
#include <utility>

#include "comm/communicator.h"

namespace triax {

Pending& Pending::operator=(Pending&& other) {
  if (this != &other) {
    wait();
    state_ = std::move(other.state_);
    recorder_ = std::move(other.recorder_);
    ticket_ = other.ticket_;
    operation_ = std::move(other.operation_);
    started_ = other.started_;
    exposed_before_ = other.exposed_before_;
  }
  return *this;
}

Pending::~Pending() noexcept(false) {
  if (!state_) return;
  if (std::uncaught_exceptions() > 0) {
    state_->abandon();
    return;
  }
  try {
    wait();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::aborted) throw;
  }
}

void Pending::wait() {
  // Taken out first: whatever comes of it, the operation is not waited for twice.
  const std::unique_ptr<State> state = std::exchange(state_, nullptr);
  if (!state) return;
  const auto begin = Clock::now();
  if (recorder_) recorder_->enter(ticket_, begin);
  try {
    state->wait();
  } catch (...) {
    if (recorder_) recorder_->leave(Clock::now());
    throw;
  }
  if (!recorder_) return;
  const auto end = Clock::now();
  recorder_->leave(end);
  if (!state->runs_on()) recorder_->finish(ticket_, end);
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  const Span work = state->work();
  const double under_way = seconds(std::min(work.end, begin) - std::max(work.begin, started_));
  const double elsewhere = recorder_->exposed_seconds() - exposed_before_;
  recorder_->add_seconds(operation_, seconds(end - begin), std::max(under_way - elsewhere, 0.0));
}

}  // namespace triax
