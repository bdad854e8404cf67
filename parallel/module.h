#pragma once

#include <string>

#include "core/arena.h"
#include "core/scratch.h"
#include "kernels/kernels.h"
#include "parallel/mesh.h"
#include "parallel/param_store.h"

namespace triax {

/// What every module of a rank works with. References; the engine owns all of it.
struct Context {
  Device& device;
  const Kernels& kernels;
  Mesh& mesh;
  ParamStore& params;
  Scratch& scratch;
};

/// The activations that one micro-batch keeps from its forward to its backward: a block laid out by a
/// Placement.
struct Slot {
  const Placement* placement = nullptr;
  void* base = nullptr;
  Tensor operator[](int index) const { return placement->at(base, index); }
};

/// One micro-batch on its way through one module.
struct Pass {
  Context& context;
  Slot slot;
  int64_t batch = 0;     ///< B sequences
  int64_t sequence = 0;  ///< S tokens each
  Tensor ids{};          ///< [T] i32 input tokens; on stages that need them
  Tensor targets{};      ///< [T] i32 next tokens; negative: none
  /// Forward for a value alone (validation, generation): nothing is kept, no gradient is computed.
  bool evaluate = false;
  /// backward_input accumulates the weights' gradients too, under the messages that it starts. Otherwise they
  /// wait for backward_weight, and what it needs is kept in the slot (zero-bubble schedules).
  bool weights_now = true;
  ExactSum* loss = nullptr;  ///< sum over tokens, added to by the head
  float loss_scale = 0;      ///< 1 / target tokens of the global batch
  Tensor logits{};  ///< [T, V] when set, the head writes the logits of an evaluation here (one tensor rank)

  int64_t tokens() const { return batch * sequence; }
};

/// Where backward_input puts a gradient that backward_weight reads: a scratch tensor when both run together,
/// one of the slot when apart.
class GradientPlace {
 public:
  void plan(Placement& slot, bool split_backward, std::string name, Shape shape) {
    name_ = std::move(name);
    shape_ = shape;
    index_ = split_backward ? slot.add(name_, shape, DType::f32) : -1;
  }
  Tensor get(const Pass& pass, Scratch::Frame& frame) const {
    return index_ >= 0 ? pass.slot[index_] : frame.take(name_, shape_);
  }
  /// In backward_weight apart from backward_input.
  Tensor kept(const Pass& pass) const {
    check(index_ >= 0, "{} was not kept for a backward_weight of its own", name_);
    return pass.slot[index_];
  }

 private:
  std::string name_;
  Shape shape_;
  int index_ = -1;
};

/// What activations look like; the same for every micro-batch of a run.
struct ActivationShape {
  int64_t batch = 0, sequence = 0, hidden = 0;
  bool split_backward = false;  ///< the schedule runs backward_weight apart
  int64_t tokens() const { return batch * sequence; }
};

/// One layer of a pipeline stage. Explicit instead of taped: recomputation is forward again into the same
/// slot, overlap is the order of two lines, and a stage is a list of modules. The caller owns x, y and their
/// gradients, [T, H] each, and hands the same x to all three calls.
class Module {
 public:
  virtual ~Module() = default;
  virtual const std::string& name() const = 0;
  /// Declares the parameters. Called once, before ParamStore::commit().
  virtual void declare(ParamStore& params) = 0;
  /// Declares what forward keeps in the slot.
  virtual void plan(Placement& slot, const ActivationShape& shape) = 0;
  /// y = module(x).
  virtual void forward(Pass& pass, const Tensor& x, const Tensor& y) = 0;
  /// dx from dy; with pass.weights_now also the weights' gradients.
  virtual void backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) = 0;
  /// The weights' gradients, accumulated, when backward_input left them; frees the slot.
  virtual void backward_weight(Pass& pass, const Tensor& x) = 0;
};

}  // namespace triax
