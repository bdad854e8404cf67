#include "model/attention.h"

#include "model/init.h"

#include <algorithm>

namespace triax {

namespace {

std::vector<Projection> projections(const std::string& name, const ModelConfig& model) {
  const int64_t head = model.hidden_size / model.num_attention_heads;
  // Without rotation a constant added to all keys adds the same to all scores of a query, and softmax does
  // not see it.
  const bool idle = model.architecture == Architecture::gpt2;
  return {{name + ".q", model.hidden_size},
          {name + ".k", model.num_key_value_heads * head, static_cast<int>(model.num_key_value_heads), idle},
          {name + ".v", model.num_key_value_heads * head, static_cast<int>(model.num_key_value_heads)}};
}

RopeStretch stretch_of(const RopeScaling& scaling) {
  RopeStretch stretch;
  if (scaling.rope_type == RopeType::plain) return stretch;
  stretch.factor = scaling.factor;
  if (scaling.rope_type == RopeType::linear) return stretch;
  stretch.context = static_cast<double>(scaling.original_max_position_embeddings);
  stretch.low = scaling.low_freq_factor;
  stretch.high = scaling.high_freq_factor;
  return stretch;
}

}  // namespace

Attention::Attention(const std::string& name, const ModelConfig& model)
    : name_(name),
      heads_(model.num_attention_heads),
      kv_heads_(model.num_key_value_heads),
      head_size_(model.hidden_size / model.num_attention_heads),
      rotary_(model.architecture == Architecture::llama),
      theta_(static_cast<float>(model.rope_theta)),
      stretch_(stretch_of(model.rope_scaling)),
      qkv_(projections(name, model), model.hidden_size, !rotary_ || model.qkv_bias,
           static_cast<float>(model.initializer_range)),
      out_(name + ".out", model.hidden_size, model.hidden_size, !rotary_, residual_stddev(model)) {}

void Attention::declare(ParamStore& params, int tensor) {
  // As many parts as there are heads to give: all tensor ranks a part of their own, or copies where heads are
  // fewer.
  qkv_.limit_parts(tensor);
  heads_ /= tensor;
  kv_heads_ = std::max<int64_t>(kv_heads_ / tensor, 1);
  qkv_.declare(params);
  out_.declare(params);
}

void Attention::plan(Placement& slot, const ActivationShape& shape) {
  const int64_t t = shape.tokens(), width = (heads_ + 2 * kv_heads_) * head_size_;
  const bool keep_core = shape.recompute == Recompute::none;
  slot_qkv_ = slot.add("qkv", {t, width}, shape.dtype);
  core_out_.plan(slot, keep_core, "attention out", {t, heads_ * head_size_}, shape.dtype);
  core_lse_.plan(slot, keep_core, "attention log-sum-exp", {shape.batch, heads_, shape.sequence}, DType::f32);
  grad_qkv_.plan(slot, shape.split_backward, "gradient of qkv", {t, width}, shape.dtype);
  grad_out_.plan(slot, false, "gradient of attention out", {t, heads_ * head_size_}, shape.dtype);
}

void Attention::plan_cache(Placement& cache, int64_t positions, DType dtype) {
  const int64_t blocks = (positions + cache_block - 1) / cache_block;
  cache_keys_ = cache.add(name_ + " keys", {kv_heads_, blocks, head_size_, cache_block}, dtype);
  cache_values_ = cache.add(name_ + " values", {kv_heads_, blocks * cache_block, head_size_}, dtype);
}

void Attention::rotate(Pass& pass, const Tensor& qkv, bool inverse) const {
  if (!rotary_) return;
  pass.context.kernels.rope(pass.context.device, {pass.batch, pass.sequence, heads_ + kv_heads_, head_size_,
                                                  qkv[1], qkv, theta_, inverse, pass.position, stretch_});
}

void Attention::run_core(Pass& pass, const Core& core) const {
  if (pass.cache) {
    const Tensor keys = pass.cache[cache_keys_], values = pass.cache[cache_values_];
    return pass.context.kernels.attention_cached(
        pass.context.device, {pass.sequence, pass.position, values[1], heads_, kv_heads_, head_size_,
                              pass.slot[slot_qkv_], keys, values, core.out});
  }
  pass.context.kernels.attention_forward(
      pass.context.device, {pass.batch, pass.sequence, heads_, kv_heads_, head_size_, pass.slot[slot_qkv_],
                            core.out, core.lse.f32()});
}

Attention::Core Attention::core_again(Pass& pass, Scratch::Frame& frame) const {
  const Core core{core_out_.get(pass, frame), core_lse_.get(pass, frame)};
  if (!core_out_.keeps()) run_core(pass, core);
  return core;
}

void Attention::forward(Pass& pass, const Tensor& x, const Tensor& y) const {
  const Tensor qkv = pass.slot[slot_qkv_];
  Scratch::Frame frame(pass.context.scratch);
  const Core core{core_out_.get(pass, frame), core_lse_.get(pass, frame)};
  qkv_.forward(pass, x, qkv);
  rotate(pass, qkv, false);
  run_core(pass, core);
  out_.forward(pass, core.out, y);
}

Tensor Attention::backward_core(Pass& pass, const Tensor& dy, const Tensor& dx, const Tensor& spare,
                                Scratch::Frame& frame) const {
  const Tensor d_qkv = grad_qkv_.get(pass, frame, spare);
  Scratch::Frame inner(pass.context.scratch);
  const Core core = core_again(pass, inner);
  const Tensor d_out = grad_out_.get(pass, inner, dx);  // dx is written when it has been read
  out_.backward_input(pass, core.out, dy, d_out);
  pass.context.kernels.attention_backward(
      pass.context.device, {pass.batch, pass.sequence, heads_, kv_heads_, head_size_, pass.slot[slot_qkv_],
                            core.out, core.lse.f32(), d_out, d_qkv});
  rotate(pass, d_qkv, true);
  return d_qkv;
}

void Attention::backward_qkv(Pass& pass, const Tensor& x, const Tensor& d_qkv, const Tensor& dx) const {
  qkv_.backward_input(pass, x, d_qkv, dx);
}

void Attention::backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const {
  Scratch::Frame frame(pass.context.scratch);
  out_.backward_weight(pass, core_again(pass, frame).out, dy);
  qkv_.backward_weight(pass, x, grad_qkv_.kept(pass));
}

}  // namespace triax
