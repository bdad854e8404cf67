#pragma once

#include <functional>
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
  /// Between the layers that are cut over the tensor group, each tensor rank has a part of the rows (see
  /// sequence.h).
  bool sequence_parallel = false;
  /// Messages are waited for as late as possible, else at once.
  bool overlap = true;
};

/// A block laid out by a Placement: the activations that one micro-batch keeps from its forward to its
/// backward, or the keys and values of a sequence.
struct Slot {
  const Placement* placement = nullptr;
  void* base = nullptr;
  void* lent = nullptr;  ///< Placement's second block, where it has tensors there
  Tensor operator[](int index) const { return placement->at(base, index, lent); }
  explicit operator bool() const { return placement != nullptr; }
};

class Module;
struct Pass;
/// Told what a module has just computed: its output [rows, H] after its forward, its input's gradient after
/// its backward (without memory where it has none). For finding where numbers stop being finite.
using Probe = std::function<void(const Pass&, const Module&, bool backward, const Tensor&)>;

/// One micro-batch on its way through one module.
struct Pass {
  Context& context;
  Slot slot;
  int64_t batch = 0;     ///< B sequences
  int64_t sequence = 0;  ///< S tokens each
  Tensor ids{};          ///< [T] i32 input tokens; on stages that need them
  Tensor targets{};      ///< [T] i32 next tokens; negative: none
  Tensor slots{};        ///< [T] i32 of ids (TableSlots), where ParamStore::lookup_grad() is by slot
  /// Forward for a value alone (validation, generation): nothing is kept, no gradient is computed.
  bool evaluate = false;
  /// backward_input accumulates the weights' gradients too, under the messages that it starts. Otherwise they
  /// wait for backward_weight, and what it needs is kept in the slot (zero-bubble schedules).
  bool weights_now = true;
  ExactSum* loss = nullptr;  ///< in the device's memory: sum over tokens, added to by the head
  float loss_scale = 0;      ///< 1 / target tokens of the global batch
  Tensor logits{};  ///< [V] f32 when set, the head of an evaluation writes the last row's logits here
  /// Generation: the rows stand at positions [position, position + S) of one sequence (B is 1), whose earlier
  /// keys and values are in the cache, which gets theirs. Without a cache a sequence begins with its row.
  Slot cache{};
  int64_t position = 0;
  /// Forward again, right before the backward, for what the backward reads: y need not be written (its memory
  /// may be used), and nothing outside the slot may change.
  bool replay = false;
  /// What dropout is a function of, with the element: the job's seed, the domains of the step's streams (by
  /// site, in the device's memory: dropout_domains()) and where in the step's global batch this micro-batch
  /// begins.
  uint64_t seed = 0;
  const uint64_t* dropout = nullptr;
  int64_t first_token = 0;

  /// On the last micro-batch of a step: told, module by module, the entries of the ParamStore [first, end)
  /// whose gradients are complete.
  const std::function<void(int first, int end)>* gradients_done = nullptr;
  const Probe* probe = nullptr;  ///< or null, as in every healthy step

  int64_t tokens() const { return batch * sequence; }
  /// Row of the micro-batch that this rank's activations begin with; not 0 with sequence parallelism alone.
  int64_t first_row() const {
    const Communicator& tp = context.mesh.tp();
    return context.sequence_parallel ? tp.rank() * (tokens() / tp.size()) : 0;
  }
};

/// A tensor that a module keeps in the slot, or else has for the time of a scratch frame alone. A gradient
/// that backward_weight reads is kept when the two halves of the backward run apart; an activation when it is
/// not computed again.
class Place {
 public:
  void plan(Placement& slot, bool keep, std::string name, Shape shape, DType dtype) {
    name_ = std::move(name);
    shape_ = shape;
    dtype_ = dtype;
    index_ = keep ? slot.add(name_, shape, dtype) : -1;
  }
  bool keeps() const { return index_ >= 0; }
  /// The tensor; without meaning at first when it is not kept. It then lies in `spare`, memory that nobody
  /// else uses as long, or where that is too small or none, in the frame.
  Tensor get(const Pass& pass, Scratch::Frame& frame, const Tensor& spare = {}) const {
    if (keeps()) return pass.slot[index_];
    return spare.holds(shape_, dtype_) ? Tensor(spare.raw(), dtype_, shape_)
                                       : frame.take(name_, shape_, dtype_);
  }
  /// What an earlier call left.
  Tensor kept(const Pass& pass) const {
    check(keeps(), "{} was not kept", name_);
    return pass.slot[index_];
  }

 private:
  std::string name_;
  Shape shape_;
  DType dtype_ = DType::f32;
  int index_ = -1;
};

/// What the backward computes again instead of finding it in the slot (Chen et al. 2016; selective:
/// Korthikanti et al. 2022).
enum class Recompute {
  none,       ///< norms and activation functions alone, always: they take a thousandth of the operations
  selective,  ///< besides, the attention core: memory for few operations
  full        ///< all but the inputs of the layers
};

/// What activations look like; the same for every micro-batch of a run.
struct ActivationShape {
  int64_t batch = 0, sequence = 0, hidden = 0;
  bool split_backward = false;  ///< the schedule runs backward_weight apart
  DType dtype = DType::f32;     ///< of activations, their gradients, and messages between stages
  int tensor = 1;               ///< ranks of the tensor group
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  /// With full: of a kept input that all tensor ranks hold alike, each keeps a part (ZeRO-R's partitioned
  /// activations, Rajbhandari et al. 2020).
  bool partition_inputs = false;
  /// What goes from stage to stage, and all tensor ranks hold alike, is sent in parts, one by each, and put
  /// together by the receivers (Narayanan et al. 2021, section 4.1).
  bool scatter_messages = false;

  int64_t tokens() const { return batch * sequence; }
  /// Of the activations between layers on one rank: T, with sequence parallelism T/t.
  int64_t rows() const { return sequence_parallel ? tokens() / tensor : tokens(); }
  Shape activation() const { return {rows(), hidden}; }
};

/// One layer of a pipeline stage. Explicit instead of taped: recomputation is forward again into the same
/// slot, overlap is the order of two lines, and a stage is a list of modules. The caller owns x, y and their
/// gradients, [T, H] each ([T/t, H] with sequence parallelism), and hands the same x to all three calls. dx
/// may lie where dy does: what is read of dy comes before what is written of dx. The model's last module has
/// no y and no dy: its forward leaves its dx in the memory that it gets for y, which may be x's. No other
/// asks for a gradient in its forward, and each asks for its own alone: others' memory may hold activations
/// (ParamStore::lendable()).
class Module {
 public:
  virtual ~Module() = default;
  virtual const std::string& name() const = 0;
  /// Declares the parameters. Called once, before ParamStore::commit().
  virtual void declare(ParamStore& params) = 0;
  /// Forward may be called again before the backward, into a slot of that time: what plan() lays out can be
  /// thrown away between them.
  virtual bool replayable() const { return false; }
  /// Declares what forward keeps in the slot.
  virtual void plan(Placement& slot, const ActivationShape& shape) = 0;
  /// Declares the keys and values that it keeps of a sequence of up to `positions`, for generation.
  virtual void plan_cache(Placement&, int64_t /*positions*/, DType) {}
  /// y = module(x).
  virtual void forward(Pass& pass, const Tensor& x, const Tensor& y) = 0;
  /// dx from dy; with pass.weights_now also the weights' gradients.
  virtual void backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) = 0;
  /// The weights' gradients, accumulated, when backward_input left them; frees the slot.
  virtual void backward_weight(Pass& pass, const Tensor& x) = 0;
};

}  // namespace triax
