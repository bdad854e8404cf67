#include "model/dropout.h"

#include <algorithm>
#include <cmath>

namespace triax {

void DropoutSite::run(Pass& pass, const Tensor& x, const Tensor& bias, const Tensor& y) const {
  const int64_t first = (pass.first_token + pass.first_row()) * x[1];
  pass.context.kernels.dropout(
      pass.context.device,
      {.t = x[0],
       .h = x[1],
       .x = x,
       .bias = bias,
       .y = y,
       .bits = RandomStream(pass.seed, fmt::format("dropout {} {}", pass.step, site_)),
       .first = static_cast<uint64_t>(first),
       .threshold = static_cast<uint32_t>(std::min(std::round(probability_ * 0x1p32), 0x1p32 - 1)),
       .scale = static_cast<float>(1 / (1 - probability_))});
}

Tensor DropoutSite::apply(Pass& pass, const Tensor& x, const Tensor& bias) const {
  if (!on(pass)) return bias;
  run(pass, x, bias, x);
  return Tensor();
}

Tensor DropoutSite::gradient(Pass& pass, const Tensor& dy, Scratch::Frame& frame) const {
  if (!on(pass)) return dy;
  const Tensor dx = frame.take("gradient under dropout", dy.shape(), dy.dtype());
  run(pass, dy, Tensor(), dx);
  return dx;
}

}  // namespace triax
