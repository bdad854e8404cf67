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
       .key = RandomStream(pass.seed, "").key(),
       .domain = pass.dropout + site_,
       .first = static_cast<uint64_t>(first),
       .threshold = static_cast<uint32_t>(std::min(std::round(probability_ * 0x1p32), 0x1p32 - 1)),
       .scale = static_cast<float>(1 / (1 - probability_))});
}

std::vector<std::string> dropout_sites(const ModelConfig& model) {
  std::vector<std::string> sites;
  if (model.hidden_dropout == 0) return sites;
  sites.emplace_back("embed");
  for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer)
    for (const char* part : {"attention", "mlp"}) sites.push_back(fmt::format("layers.{}.{}", layer, part));
  return sites;
}

void dropout_domains(const std::vector<std::string>& sites, int64_t step, uint64_t* domains) {
  for (const std::string& site : sites) *domains++ = hash_name(fmt::format("dropout {} {}", step, site));
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
