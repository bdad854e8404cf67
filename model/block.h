#pragma once

#include "model/attention.h"
#include "model/dropout.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace triax {

/// One pre-norm transformer layer: r = x + dropout(attention(norm(x))), y = r + dropout(mlp(norm(r))). The
/// row-parallel biases join the residual sums (with dropout: before it), once, after the reduction over the
/// tensor group. Of x, r and the norms, which are kept, the backward computes the norms' outputs again: less
/// than a hundredth of a step, for an eighth of the memory.
class Block final : public Module {
 public:
  Block(int layer, const ModelConfig& model, int tensor);
  const std::string& name() const override { return name_; }
  void declare(ParamStore& params) override;
  bool replayable() const override { return true; }
  void plan(Placement& slot, const ActivationShape& shape) override;
  void plan_cache(Placement& cache, int64_t positions, DType dtype) override {
    attention_.plan_cache(cache, positions, dtype);
  }
  void forward(Pass& pass, const Tensor& x, const Tensor& y) override;
  void backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void backward_weight(Pass& pass, const Tensor& x) override;

 private:
  NormState first_state(const Pass& pass, const Tensor& x) const;
  NormState second_state(const Pass& pass) const;
  /// The norm of state.residual once more, for weights' gradients: where the norm's own is to be written,
  /// `d_normed`, if that comes after them, else in scratch memory. Nothing when they are not due.
  Tensor normed(Pass& pass, const Norm& norm, const NormState& state, Scratch::Frame& frame,
                const Tensor& d_normed) const;

  std::string name_;
  int tensor_;
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  Mlp mlp_;
  DropoutSite attention_dropout_, mlp_dropout_;
  int mean1_ = -1, rstd1_ = -1, residual_ = -1, mean2_ = -1, rstd2_ = -1;
  Place grad_y_, grad_normed2_, grad_residual_, grad_normed1_;
};

}  // namespace triax
