#pragma once

#include "model/attention.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace triax {

/// One pre-norm transformer layer: r = x + attention(norm(x)), y = r + mlp(norm(r)). The row-parallel biases
/// join the residual sums, once, after the reduction over the tensor group.
class Block final : public Module {
 public:
  Block(int layer, const ModelConfig& model, int tensor);
  const std::string& name() const override { return name_; }
  void declare(ParamStore& params) override;
  void plan(Placement& slot, const ActivationShape& shape) override;
  void forward(Pass& pass, const Tensor& x, const Tensor& y) override;
  void backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void backward_weight(Pass& pass, const Tensor& x) override;

 private:
  NormState first_state(const Pass& pass, const Tensor& x) const;
  NormState second_state(const Pass& pass) const;

  std::string name_;
  int tensor_;
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  Mlp mlp_;
  int mean1_ = -1, rstd1_ = -1, normed1_ = -1, residual_ = -1, mean2_ = -1, rstd2_ = -1, normed2_ = -1;
  GradientPlace grad_y_, grad_normed2_, grad_residual_, grad_normed1_;
};

}  // namespace triax
