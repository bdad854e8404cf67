#pragma once

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/arena.h"
#include "parallel/param_spec.h"

namespace triax {

/// The weights and gradients of one rank. Declared parameter by parameter, then committed: one flat
/// buffer of weights, in fp32 or bf16, and one of gradients, in fp32, cut into buckets that the data axis
/// reduces and gathers one by one.
///
/// Parameters declared together lie side by side, so that one GEMM runs over q, k and v (or gate and up)
/// while each stays a parameter of its own. Between other parameters there may be padding up to 64 bytes;
/// weights and complete gradients there are zero.
///
/// A table that is looked up and multiplied with on one rank (a tied embedding) has two gradients there,
/// which Optimizer::sync_gradients() adds once per step. That of the products lies in the buckets. That of
/// the look-ups lies apart, and for the rows that a step looks up alone, where these are fewer than the
/// table's: row s is that of the token id of slot s.
class ParamStore {
 public:
  /// How modules add to a gradient.
  enum class GradKind {
    elements,  ///< to grad(), which is clear when a step first asks for it
    products,  ///< matrix products, into grad_sum(): a step's first one overwrites
    lookups    ///< a row for each token, to lookup_grad()
  };
  /// A parameter with its place in the flat buffers.
  struct Entry : LocalParam {
    int64_t offset = 0;  ///< first element, in the flat buffers
    int primary = -1;  ///< for a second use of a tied weight on the same rank: the entry that owns the weight
    bool counted = true;  ///< this rank's part belongs to the gradient norm and to checkpoints
  };
  /// Elements [begin, end) of the flat buffers, a multiple of `zero shards` x 16 long.
  struct Bucket {
    int64_t begin, end;
  };

  static constexpr int64_t usual_bucket = 4 << 20;
  /// `zero_shards`: parts that every bucket can be cut into. `bucket_elements`: a bucket is closed at the
  /// first parameter that passes it. `dtype`: of the weights; in bf16 they are rounded copies, whose fp32
  /// masters the optimizer keeps.
  ParamStore(const Grid& grid, int rank, Device& device, int zero_shards = 1,
             int64_t bucket_elements = usual_bucket, DType dtype = DType::f32);

  ~ParamStore();
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  /// Declares parameters that lie side by side and returns the group's id. A tied spec (alone in its group,
  /// added to by products) shares the weight of the table of the same name if this rank has declared it, and
  /// becomes a weight of its own (the copy of another stage's) if not.
  int declare(std::vector<ParamSpec> side_by_side, GradKind kind = GradKind::elements);
  /// Allocates both buffers, zero-filled; with `gradients` false (nothing is trained) the weights alone.
  /// `step_tokens`: of this rank between two calls of zero_grads(), at most.
  void commit(bool gradients = true, int64_t step_tokens = std::numeric_limits<int64_t>::max());
  /// Writes the initial values, functions of (seed, name, global index), rounded in bf16.
  void initialise(uint64_t seed);
  /// Writes the weights [first, first + count) of weights() from fp32 values in the host's memory, rounded in
  /// bf16.
  void set_weights(int64_t first, int64_t count, const float* values);
  /// The initial values, in fp32, of elements [begin, end) of an entry's box, in row-major order.
  void initial_values(const Entry& entry, uint64_t seed, int64_t begin, int64_t end, float* out) const;

  /// The group as one tensor [rows of all its parameters, columns] (or [elements] for vectors). Waits for
  /// weights that are on their way.
  Tensor weight(int group) const;
  /// Its gradient, where modules accumulate; cleared when it is asked for the first time after zero_grads().
  Tensor grad(int group);
  /// Where a matrix product is to add to the gradient, and its beta: 0 for the first after zero_grads(),
  /// which leaves it to be overwritten, else 1. The caller must do that product.
  struct GradSum {
    Tensor into;
    float beta;
  };
  GradSum grad_sum(int group);
  /// Where the gradients of looked up rows are added: [rows, H], or by slots [slots, H].
  struct LookupGrad {
    Tensor into;
    bool by_slot;
  };
  LookupGrad lookup_grad(int group);

  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// All weights, all gradients (f32): [elements], buckets one behind the other. weights() waits for all
  /// that is on its way.
  Tensor weights() const;
  Tensor grads() const { return grads_[0]; }
  int64_t elements() const { return elements_; }
  DType dtype() const { return dtype_; }
  Device& device() const { return *device_; }
  /// The bucket of an entry's gradient; of a tied table ask for its first use.
  size_t bucket_of(const Entry& entry) const;
  /// Other ranks' updates of a bucket's weights are on their way: whoever asks for these weights waits.
  void weights_arrive(size_t bucket, Pending message);
  /// The table whose look-ups have a gradient apart, to be added to its primary_grad() once per step; on
  /// ranks that have one, after commit().
  struct LookupsApart {
    const Entry* table;
    Tensor grad;      ///< [rows, H], or by slots [slots, H]; f32
    bool by_slot;     ///< fewer slots than rows
    Tensor slot_ids;  ///< as set_slot_ids() was given it
  };
  std::optional<LookupsApart> lookups_apart() const;
  /// Where the token ids of the slots are found in every step: [slots] i32 in the device's memory, negative
  /// where a slot is free; the caller's (TableSlots::assign).
  void set_slot_ids(const Tensor& ids) { slot_ids_ = ids; }
  /// The gradient that an entry's parameter is updated with.
  Tensor primary_grad(const Entry& entry) const;

  const Arena& weight_arena() const { return weights_; }
  const Arena& grad_arena() const { return grads_; }
  const Arena& lookup_arena() const { return lookups_; }
  /// Before the first micro-batch of a step: all gradients are zero for whoever asks for them next. Of the
  /// buckets' memory nothing is touched yet, so that until then it can hold something else (lendable()).
  void zero_grads();
  /// The gradients of the entries [first, end) are complete: clears those that nobody has asked for.
  void settle_grads(int first, int end);
  /// Bytes [begin, end) of grads() that a step whose modules ask for their gradients from the last declared
  /// to the first leaves alone until it comes to the entries before `entry`: theirs, without a tied table's
  /// and the padding behind it, to which the head's products come first. Nothing where begin >= end. After
  /// commit().
  std::pair<size_t, size_t> lendable(int entry) const;

 private:
  struct Group {
    int first, count;  // entries
    GradKind kind;
    Shape shape{};
    int64_t offset = 0;  // of the first entry, in the flat buffers
    int64_t end = 0;     // with the padding behind it
    bool empty = false;  // nobody has asked for the gradient in this step
  };
  bool is_apart(const Group& group) const {
    return apart_ >= 0 && &group == &groups_[static_cast<size_t>(apart_)];
  }
  void find_ends();
  void clear(Group& group, int64_t from);
  void close_bucket();
  size_t bucket_at(int64_t offset) const;
  void await(size_t bucket) const;

  const Grid* grid_;
  int rank_;
  Device* device_;
  int zero_shards_;
  int64_t bucket_elements_;
  DType dtype_;
  std::vector<Entry> entries_;
  std::vector<Group> groups_;
  std::vector<Bucket> buckets_;
  int64_t elements_ = 0, bucket_begin_ = 0;
  Arena weights_, grads_, lookups_;
  int apart_ = -1;  // group of the table whose look-ups have a gradient apart
  bool by_slot_ = false;
  Tensor slot_ids_;
  struct Arriving {
    size_t bucket;
    Pending message;
  };
  mutable std::vector<Arriving> arriving_;
};

}  // namespace triax
