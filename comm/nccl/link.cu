#include "comm/nccl/link.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>

#include "core/error.h"

namespace triax {

namespace {

using Clock = std::chrono::steady_clock;

// A link that is given up in peace ends with its peers; one of them may have gone another way.
constexpr auto kTimeToClose = std::chrono::seconds(10);

// Of a configuration an older library knows the first fields only; those that came after 2.18 are left out.
ncclConfig_t configuration(const NcclLibrary& nccl) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (nccl.version < NCCL_VERSION_CODE) {
    config.size = offsetof(ncclConfig_t, splitShare) + sizeof config.splitShare;
    config.version = static_cast<unsigned>(nccl.version);
  }
  return config;
}

void rest(Clock::duration waited) {
  if (waited < std::chrono::milliseconds(1))
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

NcclLink::NcclLink(const NcclLibrary& nccl, std::shared_ptr<Flights> flights, CudaDevice& device,
                   std::string group, const ncclUniqueId& id, int size, int rank, const CommCall& call)
    : nccl_(nccl), flights_(std::move(flights)), device_(device), group_(std::move(group)) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
             fmt::format("the stream of group '{}'", group_));
  flights_->links_.push_back(this);
  try {
    ncclConfig_t config = configuration(nccl_);
    check(nccl_.CommInitRankConfig(&comm_, size, id, rank, &config), call);
    if (const ncclResult_t result = settled(call); result != ncclSuccess) failed(result, call);
  } catch (...) {
    close();
    throw;
  }
}

NcclLink::~NcclLink() {
  try {
    if (!flights_->aborted()) {
      if (std::uncaught_exceptions() > 0)
        flights_->abort(fmt::format("an exception has ended group '{}'", group_));
      else
        flights_->wait_for(0);
    }
  } catch (const std::exception& error) {
    flights_->abort(error.what());
  }
  close();
}

void NcclLink::close() noexcept {
  std::erase(flights_->links_, this);
  if (comm_) {
    // Not in peace where a peer has gone another way.
    ncclResult_t state = nccl_.CommFinalize(comm_);
    for (const auto start = Clock::now(); state == ncclInProgress && Clock::now() - start < kTimeToClose;) {
      rest(Clock::now() - start);
      if (nccl_.CommGetAsyncError(comm_, &state) != ncclSuccess) state = ncclInternalError;
    }
    if (state == ncclSuccess)
      nccl_.CommDestroy(comm_);
    else
      nccl_.CommAbort(comm_);
    comm_ = nullptr;
  }
  cudaFree(scratch_);
  if (stream_) cudaStreamDestroy(stream_);
  scratch_ = nullptr;
  stream_ = nullptr;
}

void NcclLink::abort() noexcept {
  if (comm_) nccl_.CommAbort(comm_);
  comm_ = nullptr;
}

void NcclLink::failed(ncclResult_t result, const CommCall& call) {
  const std::source_location place = call.place;  // the call itself may go with the abort
  const char* more = nccl_.GetLastError(comm_);
  const std::string text = fmt::format(
      "{} in group '{}': NCCL {} says {}{}{}. NCCL_DEBUG=WARN in the environment makes it tell more",
      describe(call), group_, nccl_version_text(nccl_.version), nccl_.GetErrorString(result),
      more && *more ? ": " : "", more ? more : "");
  // NCCL would put an abort off to the end of an operation that is begun.
  if (std::exchange(begun_, false)) nccl_.GroupEnd();
  flights_->abort(text);
  throw Error(ErrorKind::fault, text, place);
}

void NcclLink::check(ncclResult_t result, const CommCall& call) {
  if (result != ncclSuccess && result != ncclInProgress) failed(result, call);
}

ncclResult_t NcclLink::settled(const CommCall& call) {
  const auto start = Clock::now();
  for (;;) {
    ncclResult_t state = ncclSuccess;
    check(nccl_.CommGetAsyncError(comm_, &state), call);
    if (state != ncclInProgress) return state;
    rest(Clock::now() - start);
  }
}

void NcclLink::check_error(const CommCall& call) {
  ncclResult_t state = ncclSuccess;
  check(nccl_.CommGetAsyncError(comm_, &state), call);
  check(state, call);
}

void NcclLink::follow_device() {
  const CudaEvent ready = flights_->event();
  check_cuda(cudaEventRecord(ready.get(), device_.stream()), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream_, ready.get(), 0), "cudaStreamWaitEvent");
}

void NcclLink::begin(const CommCall& call) {
  check(nccl_.GroupStart(), call);
  begun_ = true;
}

void NcclLink::end(const CommCall& call) {
  begun_ = false;
  check(nccl_.GroupEnd(), call);
  if (const ncclResult_t result = settled(call); result != ncclSuccess) failed(result, call);
}

CudaEvent NcclLink::finish(const CommCall& call, uint64_t ticket) {
  CudaEvent done = flights_->event();
  check_cuda(cudaEventRecord(done.get(), stream_), "cudaEventRecord");
  flights_->add(ticket, call, done, *this);
  return done;
}

void* NcclLink::scratch() {
  if (!scratch_) {
    // An allocation may wait for all that the device has to do, and that for a peer which is in an
    // allocation.
    flights_->wait_for(0);
    check_cuda(cudaMalloc(&scratch_, scratch_bytes()),
               fmt::format("{} bytes for the sums of group '{}'", scratch_bytes(), group_));
  }
  return scratch_;
}

}  // namespace triax
