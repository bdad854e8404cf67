#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/arena.h"
#include "engine/stage.h"
#include "kernels/kernels.h"
#include "parallel/table_slots.h"

namespace triax {

/// What differs from step to step and a step's calls read in the device's memory: the batch, this rank's
/// votes, the domains of dropout's streams, and the update's learning rate and bias corrections. All of it
/// lies in one block, so that a step needs one copy from the host, and a step that was captured once can be
/// replayed with other values.
///
/// On a device that works beside the host two page-locked blocks of the host take turns: one is filled while
/// the copy of the other, of the step before, may still be under way. They keep what they hold until they are
/// filled again, so that the last two steps can be enqueued once more. On the CPU the block itself is filled.
class StepInputs {
 public:
  struct Sizes {
    int64_t micro_batches, tokens;  ///< tokens: B * S of a micro-batch
    int64_t votes;
    int64_t dropout_sites;
    /// Of the table whose gradient is kept by slots (ParamStore::lookups_apart), if there is one.
    int64_t first_row = 0, rows = 0, slots = 0;
  };
  /// Declares and commits. `ahead`: the device works beside the host.
  StepInputs(Device& device, const Sizes& sizes, bool ahead);

  // In the device's memory.
  const MicroBatches& batch() const { return batch_; }
  const int64_t* votes() const { return votes_.as<int64_t>(); }  ///< [votes]
  const uint64_t* dropout() const {
    return static_cast<const uint64_t*>(dropout_.raw());
  }  ///< [dropout_sites], see Pass::dropout
  /// The update's; grad_scale and skip are the device's own and stay from step to step.
  UpdateScalars* scalars() const { return static_cast<UpdateScalars*>(scalars_.raw()); }

  /// Fills the next block's batch from rows [micro_batches * B, sequence + 1], slots included, and makes it
  /// the current one.
  void load_batch(const int32_t* rows, int64_t sequence);
  int current() const { return current_; }
  /// Where the host writes one of the tensors above for `block`, and what it wrote there last. Waits until
  /// the block has been copied.
  template <class T>
  T* on_host(int block, const T* in_device) {
    return reinterpret_cast<T*>(host(block) + (reinterpret_cast<const char*>(in_device) - base()));
  }
  /// Enqueues the copy of `block`. Nothing on the CPU.
  void upload(int block);

  size_t bytes() const { return device_block_.bytes(); }
  size_t host_bytes() const { return host_blocks_.bytes(); }

 private:
  char* base() const { return static_cast<char*>(batch_.ids.raw()); }
  char* host(int block);

  Device* device_;
  Arena device_block_, host_blocks_;
  MicroBatches batch_;
  std::optional<TableSlots> slots_;
  Tensor votes_, dropout_, scalars_, blocks_;
  size_t upload_bytes_ = 0;
  int current_ = 0;
  std::vector<std::unique_ptr<DeviceEvent>> copied_;  // by block; empty on the CPU
};

}  // namespace triax
