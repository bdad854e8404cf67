#pragma once

#include <memory>
#include <vector>

#include "parallel/module.h"

namespace triax {

/// A model chunk: the modules that a pipeline stage runs one behind the other for one micro-batch, with
/// everything between them in a slot. The first module's x and the last module's y belong to the caller,
/// unless the chunk begins with the embedding or ends with the head.
///
/// With full recomputation the slot holds the modules' inputs alone: a layer's own activations lie in scratch
/// memory for the time of its forward, and its backward runs forward once more, up to what it reads. Its
/// backward then computes the weights' gradients at once, also where the schedule has the halves apart: to
/// keep for later what they need would be all that is not to be kept.
class Chunk {
 public:
  Chunk(std::vector<std::unique_ptr<Module>> modules, bool first, bool last);
  void declare(ParamStore& params);
  /// Lays out the slot. With `lender`, whose gradients this chunk alone adds to, once in a step: what a
  /// module keeps lies, as far as there is room, where the gradients of the modules before it will be, which
  /// nobody writes before its own backward is done (ParamStore::lendable(): not so a tied table's).
  void plan(const ActivationShape& shape, const ParamStore* lender = nullptr);
  const Placement& slot() const { return slot_; }
  bool first() const { return first_; }
  bool last() const { return last_; }

  /// What of an activation between stages, or of its gradient, is handed over: all of it [rows, H], or this
  /// tensor rank's part when messages are scattered.
  Tensor message(const Context& context, const Tensor& activation) const;
  /// Where the message with the input of a micro-batch goes before forward. Not for the first chunk.
  Tensor input(const Context& context, const Slot& slot) const;
  /// The input of a micro-batch, [rows, H], where it is an output of the same stage.
  void set_input(const Context& context, const Slot& slot, const Tensor& x) const;
  /// `y` [rows, H] gets the output; an empty tensor for the last chunk.
  void forward(Pass& pass, const Tensor& y);
  /// `dy` [rows, H], of which the message has come, is the output's gradient (empty for the last chunk), and
  /// is written over; `dx` [rows, H] gets the input's (empty for the first).
  void backward_input(Pass& pass, const Tensor& dy, const Tensor& dx);
  /// When backward_input ran with pass.weights_now false.
  void backward_weight(Pass& pass);

 private:
  /// Does its forward run again in the backward?
  bool replays(size_t module) const;
  /// The input of a module for its forward or backward: in the slot, or when that keeps a part alone, put
  /// together in scratch memory of the frame.
  Tensor input_of(Pass& pass, size_t module, Scratch::Frame& frame) const;
  /// `pass` with the memory of a module that replays: of the frame.
  Pass with_workspace(const Pass& pass, size_t module, Scratch::Frame& frame) const;
  /// The module, whose entries declare() has noted, has added its gradient of this micro-batch; of the last
  /// one pass.gradients_done is told.
  void done(const Pass& pass, size_t module) const;

  std::vector<std::unique_ptr<Module>> modules_;
  bool first_, last_;
  ActivationShape shape_;
  Placement slot_;
  std::vector<int> first_entry_;       // in the ParamStore, of each module, and the end
  std::vector<int> inputs_;            // slot index of each module's x; -1 for the embedding
  int head_gradient_ = -1;             // of the last chunk: slot index of its head's dx
  std::vector<Placement> workspaces_;  // of modules that replay
};

}  // namespace triax
