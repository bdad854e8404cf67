// lib/libnccl_emulated.so: stands for libnccl.so.2 under the emulated runtime. Ranks are processes of one
// host, each with an emulated GPU; what they send goes through a file in memory. Like the real one it only
// enqueues, on streams that then run beside the host (stream.h); it never blocks, and asks to be polled; its
// sums of floats depend on where an element is, those of bf16 are rounded at each step, and a maximum drops
// NaN.
//
// For tests, by the environment:
//   TRIAX_EMULATED_NCCL_ERROR=R:N     operation N (from 1) of process R of mpirun does not get done, and
//   fails TRIAX_EMULATED_NCCL_VERSION=V     what ncclGetVersion says

#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/bf16.h"
#include "stream.h"

namespace {

using namespace std::chrono_literals;
using triax::bf16;

/// Bytes on their way from one rank to another.
struct Ring {
  static constexpr size_t size = 64 << 10;
  std::atomic<uint64_t> written{0}, read{0};
  char bytes[size];
};
struct Shared {
  std::atomic<int> arrived{0};
  Ring rings[];  // from * ranks + to
};

struct Transfer {
  bool sends;
  int peer;
  char* bytes;
  size_t left;
};
struct Call {
  ncclComm_t comm;
  cudaStream_t stream;
  std::function<std::vector<Transfer>()> begin;  // by the stream, when it is there
  std::function<void()> end;
};

thread_local int t_depth = 0;
thread_local std::vector<Call> t_calls;
thread_local std::vector<ncclComm_t> t_aborted;
thread_local std::string t_error;

size_t width(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

struct ncclComm {
  int ranks = 0, rank = 0;
  std::string path;
  Shared* shared = nullptr;
  size_t bytes = 0;
  std::atomic<int> state{ncclInProgress}, polls{0};
  std::atomic<bool> aborted{false};
  std::mutex mutex;
  std::string error;
  std::thread joining;
  std::atomic<int> at_work{0};

  Ring& ring(int from, int to) { return shared->rings[from * ranks + to]; }

  void fail(ncclResult_t result, const std::string& text) {
    const std::lock_guard lock(mutex);
    error = text;
    state = result;
  }

  void join() {
    const int file = open(path.c_str(), O_RDWR);
    bytes = sizeof(Shared) + static_cast<size_t>(ranks * ranks) * sizeof(Ring);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0)
      return fail(ncclSystemError, "emulated NCCL: " + path + " can't be opened");
    shared = static_cast<Shared*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    shared->arrived.fetch_add(1);
    while (shared->arrived < ranks && !aborted) std::this_thread::sleep_for(100us);
    if (rank == 0) unlink(path.c_str());
    if (!aborted) state = ncclSuccess;
  }

  /// Goes on with all at a time; between two ranks in their order.
  void exchange(std::vector<Transfer> transfers) {
    while (!aborted) {
      bool left = false, moved = false;
      std::vector<bool> busy(static_cast<size_t>(2 * ranks));
      for (Transfer& t : transfers) {
        if (t.left == 0) continue;
        left = true;
        const auto place = static_cast<size_t>(2 * t.peer + t.sends);
        if (busy[place]) continue;
        busy[place] = true;
        Ring& r = t.sends ? ring(rank, t.peer) : ring(t.peer, rank);
        const uint64_t written = r.written.load(), read = r.read.load();
        const uint64_t at = t.sends ? written : read;
        const size_t room = t.sends ? Ring::size - (written - read) : written - read;
        const size_t n = std::min({t.left, room, Ring::size - at % Ring::size});
        if (n == 0) continue;
        if (t.sends)
          std::memcpy(r.bytes + at % Ring::size, t.bytes, n);
        else
          std::memcpy(t.bytes, r.bytes + at % Ring::size, n);
        (t.sends ? r.written : r.read).store(at + n);
        t.bytes += n;
        t.left -= n;
        moved = true;
      }
      if (!left) return;
      if (!moved) std::this_thread::sleep_for(20us);
    }
  }
};

namespace {

// An operation of this process that is to fail.
bool is_to_fail() {
  static std::atomic<int> count{0};
  const char* which = std::getenv("TRIAX_EMULATED_NCCL_ERROR");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!which || !rank) return false;
  int r = -1, n = 0;
  return std::sscanf(which, "%d:%d", &r, &n) == 2 && r == std::atoi(rank) && ++count == n;
}

void run(std::vector<Call> calls, bool fails) {
  ncclComm& comm = *calls[0].comm;
  // What reads too early, or writes too late, for its own good is to be seen.
  std::this_thread::sleep_for(200us);
  if (fails) comm.fail(ncclRemoteError, "emulated NCCL: a peer has closed its connection");
  while (fails && !comm.aborted) std::this_thread::sleep_for(1ms);
  std::vector<Transfer> transfers;
  for (Call& call : calls) {
    const std::vector<Transfer> of_call = call.begin();
    transfers.insert(transfers.end(), of_call.begin(), of_call.end());
  }
  comm.exchange(std::move(transfers));
  if (!comm.aborted)
    for (Call& call : calls) call.end();
  --comm.at_work;
}

ncclResult_t refused(ncclComm_t comm, ncclResult_t result, const char* why) {
  t_error = std::string("emulated NCCL: ") + why;
  if (comm) {
    const std::lock_guard lock(comm->mutex);
    comm->error = t_error;
  }
  return result;
}

ncclResult_t flush() {
  std::vector<Call> calls = std::move(t_calls);
  t_calls.clear();
  if (calls.empty()) return ncclSuccess;
  const ncclComm_t comm = calls[0].comm;
  for (const Call& call : calls)
    if (call.comm != comm || call.stream != calls[0].stream)
      return refused(comm, ncclInvalidUsage, "a group of several communicators or streams");
  if (comm->state != ncclSuccess || comm->polls > 0)
    return refused(comm, ncclInvalidUsage, "a call while one before it is in progress");
  comm->polls = 2;
  ++comm->at_work;
  calls[0].stream->defer([calls, fails = is_to_fail()] { run(calls, fails); });
  return ncclInProgress;
}

ncclResult_t add(Call call) {
  const int state = call.comm->state;
  if (state != ncclSuccess && state != ncclInProgress) return static_cast<ncclResult_t>(state);
  t_calls.push_back(std::move(call));
  return t_depth > 0 ? ncclSuccess : flush();
}

char* bytes_of(const void* p) {
  return static_cast<char*>(const_cast<void*>(p));
}

// One step of a sum or maximum as NCCL takes it.
template <class T>
T step(ncclRedOp_t op, T a, T b) {
  if constexpr (std::is_same_v<T, bf16>)
    return triax::round_bf16(op == ncclSum ? value_of(a) + value_of(b) : std::fmax(value_of(a), value_of(b)));
  else if constexpr (std::is_floating_point_v<T>)
    return op == ncclSum ? a + b : std::fmax(a, b);
  else
    return op == ncclSum ? static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                                          static_cast<std::make_unsigned_t<T>>(b))
                         : std::max(a, b);
}

// Around a ring: part c of the elements begins with rank c + 1's.
template <class T>
void reduce(ncclRedOp_t op, const std::vector<char>& all, int ranks, size_t count, int part, void* out) {
  const T* in = reinterpret_cast<const T*>(all.data());
  for (size_t i = 0; i < count; ++i) {
    const size_t c = part >= 0 ? static_cast<size_t>(part) : i * static_cast<size_t>(ranks) / count;
    T total = in[(c + 1) % static_cast<size_t>(ranks) * count + i];
    for (int k = 2; k <= ranks; ++k)
      total = step(op, total, in[(c + static_cast<size_t>(k)) % static_cast<size_t>(ranks) * count + i]);
    static_cast<T*>(out)[i] = total;
  }
}

void reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<char>& all, int ranks, size_t count,
            int part, void* out) {
  switch (type) {
    case ncclUint8:
      return reduce<uint8_t>(op, all, ranks, count, part, out);
    case ncclInt32:
      return reduce<int32_t>(op, all, ranks, count, part, out);
    case ncclInt64:
      return reduce<int64_t>(op, all, ranks, count, part, out);
    case ncclFloat32:
      return reduce<float>(op, all, ranks, count, part, out);
    case ncclFloat64:
      return reduce<double>(op, all, ranks, count, part, out);
    case ncclBfloat16:
      return reduce<bf16>(op, all, ranks, count, part, out);
  }
}

/// Rank r of the others gets `bytes` from in + r * stride, and `all` has theirs, one behind the other.
std::vector<Transfer> exchange_all(ncclComm_t comm, const char* in, size_t stride, size_t bytes, char* all) {
  std::vector<Transfer> transfers;
  for (int r = 0; r < comm->ranks; ++r) {
    char* place = all + static_cast<size_t>(r) * bytes;
    const char* from = in + static_cast<size_t>(r) * stride;
    if (r == comm->rank) {
      if (place != from) std::memmove(place, from, bytes);
      continue;
    }
    transfers.push_back({true, r, bytes_of(from), bytes});
    transfers.push_back({false, r, place, bytes});
  }
  return transfers;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* other = std::getenv("TRIAX_EMULATED_NCCL_VERSION");
  *version = other ? std::atoi(other) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  char path[] = "/dev/shm/triax-nccl-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return refused(nullptr, ncclSystemError, "no file in /dev/shm");
  close(file);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, path, sizeof path);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->magic != 0xcafebeef || config->size > sizeof *config || config->blocking != 0)
    return refused(nullptr, ncclInvalidArgument, "a configuration that it does not know");
  auto* made = new ncclComm;
  made->ranks = ranks;
  made->rank = rank;
  made->path = id.internal;
  made->joining = std::thread([made] { made->join(); });
  *comm = made;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const int state = comm->state;
  *error = static_cast<ncclResult_t>(state);
  if (state == ncclSuccess && comm->polls > 0) {
    --comm->polls;
    *error = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->polls = 2;
  return comm->state == ncclSuccess ? ncclInProgress : ncclInvalidUsage;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return ncclCommAbort(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  if (t_depth > 0) {
    t_aborted.push_back(comm);
    return ncclSuccess;
  }
  if (comm->joining.joinable()) comm->joining.join();
  while (comm->at_work > 0) std::this_thread::sleep_for(100us);
  if (comm->shared) munmap(comm->shared, comm->bytes);
  delete comm;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInvalidArgument:
      return "invalid argument";
    default:
      return "unhandled system error";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (!comm) return t_error.c_str();
  const std::lock_guard lock(comm->mutex);
  t_error = comm->error;
  return t_error.c_str();
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto all =
      std::make_shared<std::vector<char>>(count * width(type) * static_cast<size_t>(comm->ranks));
  return add({comm, stream,
              [=] { return exchange_all(comm, bytes_of(in), 0, count * width(type), all->data()); },
              [=] { reduce(type, op, *all, comm->ranks, count, -1, out); }});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * width(type);
  const auto all = std::make_shared<std::vector<char>>(bytes * static_cast<size_t>(comm->ranks));
  return add({comm, stream, [=] { return exchange_all(comm, bytes_of(in), bytes, bytes, all->data()); },
              [=] { reduce(type, op, *all, comm->ranks, count, comm->rank, out); }});
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add({comm, stream,
              [=] { return exchange_all(comm, bytes_of(in), 0, count * width(type), bytes_of(out)); },
              [] {}});
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * width(type);
  return add({comm, stream,
              [=] {
                if (comm->rank != root) return std::vector<Transfer>{{false, root, bytes_of(out), bytes}};
                std::vector<Transfer> sends;
                for (int r = 0; r < comm->ranks; ++r)
                  if (r != root) sends.push_back({true, r, bytes_of(in), bytes});
                return sends;
              },
              [] {}});
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({comm, stream,
              [=] {
                return std::vector<Transfer>{{true, peer, bytes_of(in), count * width(type)}};
              },
              [] {}});
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({comm, stream,
              [=] {
                return std::vector<Transfer>{{false, peer, bytes_of(out), count * width(type)}};
              },
              [] {}});
}

ncclResult_t ncclGroupStart() {
  ++t_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--t_depth > 0) return ncclSuccess;
  for (const ncclComm_t comm : std::exchange(t_aborted, {})) ncclCommAbort(comm);
  return flush();
}

}  // extern "C"
