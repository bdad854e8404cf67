#pragma once

#include <string>

#include "parallel/linear.h"
#include "parallel/module.h"

/// A module that Triax does not have: y = x + down(relu(up(x))^2), without biases (squared ReLU: So et al.
/// 2021). Cut over the tensor group like Triax's own feed-forward layers, by the same two linear layers:
///     x [T, H] -> u [T, F/t] -> a [T, F/t] -> y [T, H]
class SquaredRelu final : public triax::Module {
 public:
  /// `name`: "layers.0".
  SquaredRelu(std::string name, int64_t hidden, int64_t intermediate);
  const std::string& name() const override { return name_; }
  void declare(triax::ParamStore& params) override;
  void plan(triax::Placement& slot, const triax::ActivationShape& shape) override;
  void forward(triax::Pass& pass, const triax::Tensor& x, const triax::Tensor& y) override;
  void backward_input(triax::Pass& pass, const triax::Tensor& x, const triax::Tensor& dy,
                      const triax::Tensor& dx) override;
  /// Nothing is left: plan() refuses schedules that run it apart.
  void backward_weight(triax::Pass&, const triax::Tensor&) override {}

 private:
  std::string name_;
  int64_t width_;  // F
  triax::ColumnLinear up_;
  triax::RowLinear down_;
  int u_ = -1, a_ = -1;  // in the slot
};
