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
  state->wait();
  if (recorder_) recorder_->finish(ticket_);
}

}  // namespace triax
