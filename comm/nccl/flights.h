#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/library.h"
#include "comm/recorder.h"
#include "core/device_cuda.h"

namespace triax {

class NcclLink;

/// A CUDA event, used again when nobody holds it any more.
using CudaEvent = std::shared_ptr<CUevent_st>;

/// One rank's operations that NCCL has been given and that are not done: kept in the order of their start, so
/// that the recorder learns when they end, a waiting host shows its watchdog in which of them it waits, and
/// an error that NCCL finds while it works ends the wait. Shared by all links of a device, and its watch. For
/// the rank's own thread.
class Flights final : public CudaDevice::Watch {
 public:
  explicit Flights(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}
  ~Flights() override;

  CudaEvent event();
  /// The operation that the recorder knows as `ticket`, of which `done` is the end.
  void add(uint64_t ticket, const CommCall& call, CudaEvent done, NcclLink& link);
  /// Waits until no more than `most` operations are under way.
  void wait_for(size_t most);
  /// Throws Error(aborted) when a link has failed before.
  void check_alive(const CommCall& call) const;
  /// The end of all links of this rank: what their kernels wait for will not come. `cause` is told to whoever
  /// calls one again; the first one counts.
  void abort(const std::string& cause) noexcept;
  bool aborted() const { return !cause_.empty(); }

  // Watch.
  bool busy() override { return !flights_.empty(); }
  void look() override;
  void over() noexcept override;

 private:
  friend class NcclLink;
  struct Flight {
    uint64_t ticket;
    CommCall call;
    CudaEvent done;
    NcclLink* link;
  };

  std::shared_ptr<Recorder> recorder_;
  std::deque<Flight> flights_;
  std::vector<NcclLink*> links_;  // in the order of their making
  std::shared_ptr<std::vector<cudaEvent_t>> free_events_ = std::make_shared<std::vector<cudaEvent_t>>();
  std::string cause_;
  uint64_t waits_in_ = 0;
  bool waiting_ = false;
};

}  // namespace triax
