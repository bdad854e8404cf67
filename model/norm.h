#pragma once

#include <string>

#include "model/config.h"
#include "parallel/module.h"

namespace triax {

/// What a norm leaves for its backward: the input it saw (after the residual sum) and the statistics of each
/// row.
struct NormState {
  Tensor residual;  ///< [T, H]
  Tensor mean;      ///< [T]; unused by RMSNorm
  Tensor rstd;      ///< [T]
};

/// LayerNorm with bias (gpt2) or RMSNorm (llama), on the whole hidden dimension of every tensor rank. Its
/// owner places all tensors.
class Norm {
 public:
  /// `name`: "layers.0.attention_norm".
  Norm(std::string name, const ModelConfig& model);
  void declare(ParamStore& params);

  /// y = norm(x) * weight (+ bias); state.residual must be x.
  void forward(Pass& pass, const NormState& state, const Tensor& y) const;
  /// state.residual = x + (delta + delta_bias), y = norm of it. delta_bias may be empty.
  void forward_residual(Pass& pass, const Tensor& x, const Tensor& delta, const Tensor& delta_bias,
                        const NormState& state, const Tensor& y) const;
  /// dx = dr + gradient through the norm; dr (may be empty) is the gradient that passes it by. With
  /// pass.weights_now also backward_weight.
  void backward_input(Pass& pass, const NormState& state, const Tensor& dy, const Tensor& dr,
                      const Tensor& dx) const;
  void backward_weight(Pass& pass, const NormState& state, const Tensor& dy) const;

 private:
  std::string name_;
  bool layer_norm_;
  int64_t hidden_;
  float epsilon_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace triax
