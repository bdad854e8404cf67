#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "core/thread_pool.h"

namespace triax {

enum class DeviceKind {
  cpu,
  cuda,
  none,  ///< hands out addresses without memory: the same code runs to be planned, not to compute
};

std::string_view name_of(DeviceKind kind);

/// A point in the order of what a device was given, used again and again: made once, so that a step makes
/// nothing. Goes before its device.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// All that has been enqueued so far; forgets the point before.
  virtual void record() {}
  /// Waits until the recorded point has been reached; at once when nothing was recorded.
  virtual void wait() {}
};

/// Calls that were recorded once, to be enqueued as one. Goes before its device.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Enqueues all of them.
  virtual void launch() = 0;
};

/// A device's own clock: how long what is enqueued takes there, which the host can't see.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  /// Enqueued: the moment at which all that was enqueued before is done. Returns its number, from 0.
  virtual int mark() = 0;
  /// From one moment to a later one. Waits until that has come.
  virtual double seconds(int from, int to) = 0;
  /// Forgets all moments.
  virtual void restart() = 0;
};

/// A device's own memory, in bytes.
struct DeviceMemoryUse {
  size_t allocated = 0;  ///< by its Device: allocate(), and what the kernels share
  size_t most = 0;       ///< the most that `allocated` ever was
  /// Of the whole device, by everybody: other ranks and processes, contexts, code, libraries, graphs.
  size_t taken = 0, total = 0;
};

/// Memory and execution resources of one rank. Each rank owns its Device and is its only user, so nothing
/// here is shared between ranks. Work on a device is enqueued in order; on the CPU it is done when the call
/// returns. The host may not follow pointers to a device's memory: what it wants to see or to put there goes
/// through read() and write().
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;

  /// A block aligned to 4096 bytes (CUDA: 256), zero-filled, owned by the caller until deallocate(). Throws
  /// an Error that names `purpose` and the size when there is not enough.
  virtual void* allocate(size_t bytes, std::string_view purpose) = 0;
  virtual void deallocate(void* block, size_t bytes) = 0;
  /// The same in the host's memory, of the kind that read() and write() are fastest with (CUDA: page-locked).
  virtual void* allocate_host(size_t bytes, std::string_view purpose) = 0;
  virtual void deallocate_host(void* block, size_t bytes) = 0;

  /// Enqueued, within the device's memory; source and destination must stay alive until the work before
  /// synchronize() is done.
  virtual void copy(void* destination, const void* source, size_t bytes) = 0;
  /// From the host's memory, after what was enqueued before; the source may be changed on return.
  virtual void write(void* destination, const void* host_source, size_t bytes) = 0;
  /// To the host's memory, after all that was enqueued before: waits for it.
  virtual void read(void* host_destination, const void* source, size_t bytes) = 0;
  /// `rows` runs of `bytes` each, which begin so many bytes apart.
  virtual void copy_rows(void* destination, size_t destination_stride, const void* source,
                         size_t source_stride, size_t bytes, int64_t rows) = 0;
  virtual void fill_zero(void* destination, size_t bytes) = 0;
  /// Returns when all that was enqueued is done.
  virtual void synchronize() = 0;

  // For steps that the host does not wait in. On a device whose work is done when a call returns they are
  // what they are without the "later".
  /// write() from memory of allocate_host(), which must stay as it is until the copy is done; the host does
  /// not wait for room.
  virtual void write_later(void* destination, const void* host_source, size_t bytes) {
    write(destination, host_source, bytes);
  }
  /// read() into memory of allocate_host(), there when an event that is recorded afterwards has been reached.
  virtual void read_later(void* host_destination, const void* source, size_t bytes) {
    read(host_destination, source, bytes);
  }
  virtual std::unique_ptr<DeviceEvent> make_event() { return std::make_unique<DeviceEvent>(); }

  /// Goes before the device. Where work is done when a call returns it is the host's.
  virtual std::unique_ptr<DeviceClock> make_clock();
  /// Nothing where the device's memory is the host's.
  virtual std::optional<DeviceMemoryUse> memory_use() const { return std::nullopt; }

  /// Whether capture() can record calls.
  virtual bool captures() const { return false; }
  /// Runs `enqueue` and keeps what it enqueues instead of enqueueing it: calls with the addresses and values
  /// that they have now. Nothing in it may wait, allocate or touch another device; an Error that names the
  /// call, or that `enqueue` has thrown, says what did, and nothing has been enqueued then.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& enqueue);

  /// Compute threads of this rank on the host.
  virtual ThreadPool& threads() = 0;
};

/// The host: memory on huge pages where the system grants them, kept for the life of the block.
std::unique_ptr<Device> make_cpu_device(int threads);
/// A device that computes nothing: addresses are distinct and never to be dereferenced.
std::unique_ptr<Device> make_null_device();

}  // namespace triax
