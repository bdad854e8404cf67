#include "comm/nccl/flights.h"

#include <algorithm>

#include "comm/nccl/link.h"
#include "core/error.h"

namespace triax {

Flights::~Flights() {
  for (const cudaEvent_t event : *free_events_) cudaEventDestroy(event);
}

CudaEvent Flights::event() {
  cudaEvent_t event = nullptr;
  if (free_events_->empty()) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  } else {
    event = free_events_->back();
    free_events_->pop_back();
  }
  // Who comes back after this has gone is destroyed.
  return {event, [pool = std::weak_ptr(free_events_)](cudaEvent_t e) {
            if (const auto alive = pool.lock())
              alive->push_back(e);
            else
              cudaEventDestroy(e);
          }};
}

void Flights::add(uint64_t ticket, const CommCall& call, CudaEvent done, NcclLink& link) {
  flights_.push_back({ticket, call, std::move(done), &link});
}

void Flights::wait_for(size_t most) {
  if (flights_.size() <= most) return;
  check_cuda(wait_watched(*this, [&] { return flights_.size() > most ? cudaErrorNotReady : cudaSuccess; }),
             "waiting for NCCL");
}

void Flights::check_alive(const CommCall& call) const {
  if (aborted()) throw Error(ErrorKind::aborted, fmt::format("stopped because {}", cause_), call.place);
}

void Flights::abort(const std::string& cause) noexcept {
  if (aborted()) return;
  cause_ = cause;
  // As one: the kernels of a link may wait behind those of another.
  if (!links_.empty()) {
    const NcclLibrary& nccl = links_.front()->nccl();
    nccl.GroupStart();
    for (NcclLink* link : links_) link->abort();
    nccl.GroupEnd();
  }
  flights_.clear();
}

// Ends are found out of order too: links do not wait for each other.
void Flights::look() {
  if (aborted()) throw Error(ErrorKind::aborted, fmt::format("stopped because {}", cause_));
  const auto now = Recorder::Clock::now();
  std::erase_if(flights_, [&](const Flight& flight) {
    const cudaError_t status = cudaEventQuery(flight.done.get());
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // is no error, and is not to be the next kernel's
      return false;
    }
    check_cuda(status, fmt::format("{} in group '{}'", describe(flight.call), flight.link->group()));
    recorder_->finish(flight.ticket, now);
    return true;
  });
  for (const Flight& flight : flights_) flight.link->check_error(flight.call);
  // Inside of a recorded call the rank has said already where it is.
  const bool inside = recorder_->position().inside_since != 0;
  if (inside && !waiting_) return;
  if (flights_.empty()) {
    over();
  } else if (!waiting_ || waits_in_ != flights_.front().ticket) {
    waiting_ = true;
    waits_in_ = flights_.front().ticket;
    recorder_->enter(waits_in_, now);
  }
}

void Flights::over() noexcept {
  if (waiting_) recorder_->leave(Recorder::Clock::now());
  waiting_ = false;
}

}  // namespace triax
