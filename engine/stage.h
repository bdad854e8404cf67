#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "model/chunk.h"
#include "pipeline/executor.h"

namespace triax {

/// Token ids of the micro-batches that this rank works on in one pass of the schedule.
struct MicroBatches {
  Tensor ids;      ///< [micro-batches, B * S] i32
  Tensor targets;  ///< [micro-batches, B * S] i32
};

/// One pipeline stage: chunks of the model, the slots of micro-batches in flight, and the messages to the
/// stages beside it. Runs the actions of a schedule.
class Stage final : public StageOperations {
 public:
  /// `schedules`: every list of actions that will be run (training and evaluation); they decide the number of
  /// slots.
  Stage(Context& context, std::vector<Chunk> chunks, const ActivationShape& shape,
        const std::vector<std::vector<Action>>& schedules);
  /// Allocates slots and message buffers.
  void commit();
  const Arena& slot_arena() const { return slots_; }
  const Arena& message_arena() const { return messages_; }
  /// Slots of all chunks: micro-batches (times chunks) whose activations are kept at most.
  int slot_count() const;

  struct Run {
    const MicroBatches* micro_batches = nullptr;
    bool evaluate = false;
    float loss_scale = 0;
    ExactSum* loss = nullptr;
  };
  /// Runs a list of actions to its end: all messages sent have been received when it returns.
  void run(const std::vector<Action>& actions, const Run& run);
  /// Forward of one micro-batch for its logits [B * S, V]; only with one stage and one tensor rank.
  void logits(const Tensor& ids, const Tensor& logits);

  void recv_forward(const Action& action) override;
  void forward(const Action& action) override;
  void send_forward(const Action& action) override;
  void recv_backward(const Action& action) override;
  void backward(const Action& action) override;
  void backward_input(const Action& action) override;
  void backward_weight(const Action& action) override;
  void send_backward(const Action& action) override;

 private:
  /// A direction's two message buffers: one is written while the other is on its way.
  struct Outbox {
    Tensor buffer[2];
    Pending pending[2];
    int next = 0;
    // finish() has waited, or an exception is on its way and the messages are abandoned: nothing can throw
    // here.
    ~Outbox() noexcept {}
    /// A buffer whose message is done.
    Tensor take();
    void sent(Pending pending);
    void finish();
  };
  Slot take_slot(const Action& action);
  Slot slot_of(const Action& action) const;
  void free_slot(const Action& action);
  Pass pass_of(const Action& action, const Slot& slot) const;
  void run_backward(const Action& action, bool weights_now);
  int stage_after() const;
  int stage_before() const;

  Context* context_;
  std::vector<Chunk> chunks_;
  ActivationShape shape_;
  Arena slots_, messages_;
  std::vector<std::vector<int>> slot_blocks_;  // per chunk: arena index of each slot
  std::vector<std::vector<int>> slot_user_;    // per chunk and slot: micro-batch, or -1
  std::vector<int> outbox_index_;
  int inbox_index_ = -1;
  Outbox out_forward_, out_backward_;
  Tensor outgoing_, outgoing_gradient_, incoming_gradient_;
  Run run_;
};

}  // namespace triax
