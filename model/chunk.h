#pragma once

#include <memory>
#include <vector>

#include "parallel/module.h"

namespace triax {

/// A model chunk: the modules that a pipeline stage runs one behind the other for one micro-batch, with
/// everything between them in a slot. The first module's x and the last module's y belong to the caller,
/// unless the chunk begins with the embedding or ends with the head.
class Chunk {
 public:
  Chunk(std::vector<std::unique_ptr<Module>> modules, bool first, bool last);
  void declare(ParamStore& params);
  /// Lays out the slot.
  void plan(const ActivationShape& shape);
  const Placement& slot() const { return slot_; }
  bool first() const { return first_; }
  bool last() const { return last_; }

  /// Where the input of a micro-batch goes before forward (for the receive); [T, H]. Not for the first chunk.
  Tensor input(const Slot& slot) const { return slot[inputs_.at(0)]; }
  /// `y` [T, H] gets the output; an empty tensor for the last chunk.
  void forward(Pass& pass, const Tensor& y);
  /// `dy` [T, H] is the output's gradient (empty for the last chunk); `dx` [T, H] gets the input's (empty for
  /// the first).
  void backward_input(Pass& pass, const Tensor& dy, const Tensor& dx);
  /// When backward_input ran with pass.weights_now false.
  void backward_weight(Pass& pass);

 private:
  Tensor input_of(const Pass& pass, size_t module) const;

  std::vector<std::unique_ptr<Module>> modules_;
  bool first_, last_;
  Placement slot_;
  std::vector<int> inputs_;  // slot index of each module's x; -1 for the embedding
  Shape activation_;
};

}  // namespace triax
