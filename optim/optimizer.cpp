#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>

namespace triax {

Optimizer::Optimizer(Context& context, const OptimizerConfig& config)
    : context_(&context),
      config_(config),
      data_(context.mesh.dp().size()),
      place_(context.mesh.dp().rank()),
      shards_(context.mesh.zero_shard() ? context.mesh.zero_shard()->size() : 1),
      own_(context.params, data_, place_, data_),
      updated_(context.params, data_, place_ % shards_, shards_),
      state_("optimizer", context.device) {
  const int64_t elements = updated_.elements();
  exp_avg_ = state_.declare("exp_avg", {elements}, DType::f32);
  exp_avg_sq_ = state_.declare("exp_avg_sq", {elements}, DType::f32);
  if (context.params.weights().dtype() != DType::f32)
    master_ = state_.declare("master weights", {elements}, DType::f32);
  reset_progress();
}

void Optimizer::initialise(uint64_t seed) {
  if (!has_masters() || context_->device.kind() == DeviceKind::none) return;
  constexpr int64_t block = 1 << 18;
  std::vector<float> values(block);
  for (const auto& piece : updated_.pieces())
    for (int64_t at = piece.begin; at < piece.end; at += block) {
      const int64_t n = std::min(block, piece.end - at), first = piece.first_in_box + at - piece.begin;
      context_->params.initial_values(context_->params.entries()[static_cast<size_t>(piece.entry)], seed,
                                      first, first + n, values.data());
      context_->device.write(master_at(at), values.data(), static_cast<size_t>(n) * sizeof(float));
    }
}

void Optimizer::masters_changed() {
  if (!has_masters()) return;
  for (const auto& piece : updated_.pieces())
    context_->kernels.cast(context_->device,
                           {piece.end - piece.begin, master_at(piece.begin), rounded_at(piece.begin)});
  publish_weights();
}

void Optimizer::sum_copies(size_t bucket) {
  Communicator& group = context_->mesh.tp_copies();
  if (group.size() == 1) return;
  for (const auto& entry : context_->params.entries()) {
    if (entry.primary >= 0 || context_->params.bucket_of(entry) != bucket) continue;
    // Fewer parts than tensor ranks: each copy saw other query heads. Whole copies (norms, row biases) saw
    // the same and need no sum, unless the rows are cut (sum_rows()).
    if (entry.spec.shards.empty() || entry.copies == 1) continue;
    const Tensor grad = context_->params.primary_grad(entry);
    group.all_reduce(grad, grad, ReduceOp::sum).wait();
  }
}

// With sequence parallelism norms, row biases and positions have a gradient from each tensor rank's part of
// the rows. They are many and small, so those of a bucket go in one message.
void Optimizer::sum_rows(size_t bucket) {
  if (!context_->sequence_parallel) return;
  std::vector<Tensor> partial;
  int64_t elements = 0;
  for (const auto& entry : context_->params.entries()) {
    if (!entry.spec.shards.empty() || entry.primary >= 0 || context_->params.bucket_of(entry) != bucket)
      continue;
    partial.push_back(context_->params.primary_grad(entry));
    elements += partial.back().numel();
  }
  if (partial.empty()) return;
  Scratch::Frame frame(context_->scratch);
  const Tensor message = frame.take("gradients of a part of the rows", {elements});
  const auto for_each = [&](auto&& copy) {
    int64_t at = 0;
    for (const Tensor& grad : partial) {
      copy(grad, message.rows(at, grad.numel()));
      at += grad.numel();
    }
  };
  Device& device = context_->device;
  for_each(
      [&](const Tensor& grad, const Tensor& place) { device.copy(place.raw(), grad.raw(), grad.bytes()); });
  context_->mesh.tp().all_reduce(message, message, ReduceOp::sum).wait();
  for_each(
      [&](const Tensor& grad, const Tensor& place) { device.copy(grad.raw(), place.raw(), grad.bytes()); });
}

void Optimizer::sum_tied() {
  const ParamStore& params = context_->params;
  const Kernels& k = context_->kernels;
  if (const auto lookups = params.lookups_apart()) {
    const auto& [table, grad, by_slot, slot_ids] = *lookups;
    const Tensor sum = params.primary_grad(*table);
    check(!by_slot || slot_ids.numel() == grad[0], "{}: its gradient has {} slots, and {} have ids",
          table->spec.name, grad[0], slot_ids.numel());
    if (by_slot)
      k.embedding_backward(context_->device, {grad[0], grad[1], table->box.extent[0], table->box.offset[0],
                                              slot_ids.i32(), grad, sum.f32()});
    else
      k.add(context_->device, {sum.numel(), grad.f32(), sum.f32()});
  }
  Communicator* group = context_->mesh.tied();
  if (!group) return;
  // The first stage's table, and the last stage's copy of it.
  for (const auto& entry : params.entries()) {
    const bool mine =
        context_->mesh.first_stage() ? entry.spec.name == "embed.tokens.weight" : entry.spec.tied;
    if (!mine) continue;
    const Tensor grad = params.primary_grad(entry);
    group->all_reduce(grad, grad, ReduceOp::sum).wait();
  }
}

// `count` of the data axis's parts of a bucket, of the weights or the gradients.
Tensor Optimizer::part(const Tensor& flat, size_t bucket, int first, int count) const {
  const auto& [begin, end] = context_->params.buckets()[bucket];
  const int64_t length = (end - begin) / data_;
  return flat.rows(begin + first * length, count * length);
}

// Whether a bucket holds a gradient to which sum_tied() adds.
bool Optimizer::waits_for_tied(size_t bucket) const {
  const ParamStore& params = context_->params;
  const bool ties = context_->mesh.tied() != nullptr;
  for (const auto& entry : params.entries()) {
    if (entry.primary >= 0) {
      if (params.bucket_of(params.entries()[static_cast<size_t>(entry.primary)]) == bucket) return true;
      continue;
    }
    const bool tied =
        ties && (context_->mesh.first_stage() ? entry.spec.name == "embed.tokens.weight" : entry.spec.tied);
    if (tied && params.bucket_of(entry) == bucket) return true;
  }
  return false;
}

void Optimizer::reset_progress() {
  const ParamStore& params = context_->params;
  progress_.clear();
  progress_.resize(params.buckets().size());
  for (const auto& entry : params.entries())
    if (entry.primary < 0) ++progress_[params.bucket_of(entry)].missing;
  for (size_t b = 0; b < progress_.size(); ++b)
    if (waits_for_tied(b)) ++progress_[b].missing;  // never gone: sync_gradients() starts it
}

void Optimizer::gradients_done(int first, int end) {
  const ParamStore& params = context_->params;
  for (int i = first; i < end; ++i) {
    const auto& entry = params.entries()[static_cast<size_t>(i)];
    if (entry.primary >= 0) continue;
    const size_t bucket = params.bucket_of(entry);
    if (--progress_[bucket].missing == 0) start_reduction(bucket);
  }
}

void Optimizer::add_own_squares(size_t bucket) {
  const ParamStore& params = context_->params;
  for (const auto& entry : params.entries()) {
    if (!entry.counted || entry.primary >= 0 || params.bucket_of(entry) != bucket) continue;
    context_->kernels.squared_norm(context_->device,
                                   {entry.box.numel(), params.grads().f32() + entry.offset, own_squares_});
  }
}

void Optimizer::start_reduction(size_t bucket) {
  progress_[bucket].started = true;
  sum_copies(bucket);
  sum_rows(bucket);
  if (own_squares_) add_own_squares(bucket);
  if (data_ == 1) return;
  const Tensor grads = context_->params.grads();
  progress_[bucket].message = context_->mesh.dp().reduce_scatter(part(grads, bucket, 0, data_),
                                                                 part(grads, bucket, place_), ReduceOp::sum);
}

void Optimizer::finish_reduction(size_t bucket) {
  progress_[bucket].message.wait();
  Communicator* replicas = context_->mesh.zero_replicas();
  if (!replicas) return;
  const Tensor grads = context_->params.grads(), mine = part(grads, bucket, place_);
  if (shards_ == 1) {
    replicas->all_gather(mine, part(grads, bucket, 0, data_)).wait();
    return;
  }
  Scratch::Frame frame(context_->scratch);
  const Tensor all = frame.take("gradients of all shard groups", {replicas->size() * mine.numel()});
  replicas->all_gather(mine, all).wait();
  for (int group = 0; group < replicas->size(); ++group) {
    const Tensor to = part(grads, bucket, group * shards_ + place_ % shards_);
    context_->device.copy(to.raw(), all.rows(group * mine.numel(), mine.numel()).raw(), to.bytes());
  }
}

void Optimizer::sync_gradients() {
  sum_tied();
  for (size_t b = 0; b < progress_.size(); ++b) {
    if (!progress_[b].started) start_reduction(b);
    if (!context_->overlap) progress_[b].message.wait();
  }
  for (size_t b = 0; b < progress_.size(); ++b) finish_reduction(b);
  reset_progress();
}

// Those of the others may arrive later.
void Optimizer::publish_weights() {
  ParamStore& params = context_->params;
  const Tensor weights = params.weights();
  Communicator* shard = context_->mesh.zero_shard();
  if (!shard) return;
  for (size_t b = 0; b < params.buckets().size(); ++b)
    for (int first = 0; first < data_; first += shards_) {
      Pending message =
          shard->all_gather(part(weights, b, first + shard->rank()), part(weights, b, first, shards_));
      if (context_->overlap)
        params.weights_arrive(b, std::move(message));
      else
        message.wait();
    }
}

// Copies that do not count are checked as well: this rank would update its own with them.
void Optimizer::add_squared_norm(ExactSum* sum) {
  const float* grads = context_->params.grads().f32();
  for (const auto& piece : own_.pieces()) {
    const bool counted = context_->params.entries()[static_cast<size_t>(piece.entry)].counted;
    context_->kernels.squared_norm(context_->device,
                                   {piece.end - piece.begin, grads + piece.begin, sum, !counted});
  }
}

UpdateScalars Optimizer::scalars(int64_t update, double learning_rate) const {
  const auto correction = [&](double beta) {
    return static_cast<float>(1.0 - std::pow(beta, static_cast<double>(update)));
  };
  return {.lr = static_cast<float>(learning_rate),
          .bias_correction1 = correction(config_.betas[0]),
          .bias_correction2 = correction(config_.betas[1])};
}

void Optimizer::update(UpdateScalars* scalars, const ExactSum* squared_norm, const ExactSum* loss) {
  ParamStore& params = context_->params;
  Device& device = context_->device;
  float* grads = params.grads().f32();
  context_->kernels.decide_update(device, {squared_norm, loss, config_.clip_grad_norm, scalars});
  for (const auto& piece : updated_.pieces()) {
    AdamW op{};
    op.n = piece.end - piece.begin;
    op.weight = master_at(piece.begin);
    op.grad = grads + piece.begin;
    op.exp_avg = exp_avg_at(piece.begin);
    op.exp_avg_sq = exp_avg_sq_at(piece.begin);
    op.beta1 = static_cast<float>(config_.betas[0]);
    op.beta2 = static_cast<float>(config_.betas[1]);
    op.epsilon = static_cast<float>(config_.eps);
    op.weight_decay = params.entries()[static_cast<size_t>(piece.entry)].spec.decay
                          ? static_cast<float>(config_.weight_decay)
                          : 0.0F;
    op.scalars = scalars;
    if (has_masters()) op.rounded = rounded_at(piece.begin);
    context_->kernels.adamw(device, op);
  }
}

}  // namespace triax
