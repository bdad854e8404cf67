#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "model/chunk.h"
#include "pipeline/executor.h"
#include "pipeline/validate.h"

namespace triax {

/// Token ids of the micro-batches that this rank works on in one pass of the schedule.
struct MicroBatches {
  Tensor ids;         ///< [micro-batches, B * S] i32
  Tensor targets;     ///< [micro-batches, B * S] i32
  Tensor slots{};     ///< [micro-batches, B * S] i32, or nothing; see Pass::slots
  Tensor slot_ids{};  ///< [slots] i32
};

/// One pipeline stage: chunks of the model, the slots of micro-batches in flight, and the messages to the
/// stages beside it. Runs this stage's actions of two schedules.
class Stage final : public StageOperations {
 public:
  /// `chunks`: this stage's parts of the model, in the order of their numbers. Slots are shared by the
  /// chunks: as many as the schedules keep at most (assign_slots), each as large as the largest chunk's.
  Stage(Context& context, std::vector<Chunk> chunks, const ActivationShape& shape, const Schedule& training,
        const Schedule& evaluation);
  /// Allocates slots and message buffers.
  void commit();
  const Arena& slot_arena() const { return slots_; }
  /// Of a micro-batch's activations, bytes that lie in the gradients' memory instead (Chunk::plan).
  size_t lent_bytes() const;
  const Arena& message_arena() const { return messages_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  /// Micro-batches (of each chunk, where there are several) whose activations are kept at once at most.
  int slot_count() const { return static_cast<int>(slot_index_.size()); }

  struct Run {
    const MicroBatches* micro_batches = nullptr;
    bool evaluate = false;
    float loss_scale = 0;
    ExactSum* loss = nullptr;  ///< in the device's memory
    // What dropout is a function of: the job's seed, Pass::dropout, and this data rank's first sequence in
    // the batch.
    uint64_t seed = 0;
    const uint64_t* dropout = nullptr;
    int64_t first_sequence = 0;
    /// Told the entries whose gradients of the step are complete, as Pass::gradients_done; or null.
    const std::function<void(int first, int end)>* gradients_done = nullptr;
    const Probe* probe = nullptr;  ///< told what every module computes; or null
  };
  /// Every action of later training runs goes into `trace` while that is on; null: none.
  void set_trace(Trace* trace) { trace_ = trace; }
  /// Runs the training schedule, or with run.evaluate the evaluation, to its end: all messages sent have been
  /// received when it returns.
  void run(const Run& run);

  void make_room(const Action& action) override;
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
    ~Outbox() noexcept;
    /// A buffer whose message is done.
    Tensor take();
    void sent(Pending pending);
    void finish();
  };
  /// This stage's part of a schedule.
  struct Program {
    std::vector<Action> actions;
    SlotPlan slots;
  };
  Program program_of(const Schedule& schedule) const;
  const Program& program() const { return run_.evaluate ? evaluation_ : training_; }
  Chunk& chunk_of(const Action& action) { return chunks_.at(static_cast<size_t>(action.chunk)); }
  Slot slot_of(const Action& action) const;
  Pass pass_of(const Action& action) const;
  void run_backward(const Action& action, bool weights_now);
  bool alone() const { return context_->mesh.size("pp") == 1; }
  int stage_after() const;
  int stage_before() const;

  Context* context_;
  std::vector<Chunk> chunks_;
  ActivationShape shape_;
  Program training_, evaluation_;
  bool lends_ = false;  // the gradients their memory, to slots
  Arena slots_, messages_;
  std::vector<int> slot_index_;  // in the arena
  std::vector<int> message_index_;
  Outbox out_forward_, out_backward_;
  Tensor outgoing_, outgoing_gradient_, incoming_gradient_;
  Run run_;
  Trace* trace_ = nullptr;
};

}  // namespace triax
