#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "parallel/module.h"

namespace triax {

/// Dropout at one site of the model. Which elements are kept is a function of (seed, step, site, index of the
/// element in the global batch [sequence, token, hidden]) by Philox, so that the bits are the same on every
/// grid, schedule and split of the batch, and when forward runs again. Off in evaluations.
///
/// A site's stream of a step is named "dropout <step> <site>". Its domain is read from Pass::dropout, where
/// the host puts those of all sites before each step (dropout_domains()).
class DropoutSite {
 public:
  /// `site`: its number, see dropout_sites().
  DropoutSite(int site, double probability) : site_(site), probability_(probability) {}
  bool on(const Pass& pass) const { return probability_ > 0 && !pass.evaluate; }
  /// x [rows, H] = dropout(x + bias), where bias (may be empty) is what the consumer of x was to add; returns
  /// what is left for it to add. Off: x stays, and bias is returned.
  Tensor apply(Pass& pass, const Tensor& x, const Tensor& bias) const;
  /// The gradient of apply's input: scratch memory of the frame; dy itself when off.
  Tensor gradient(Pass& pass, const Tensor& dy, Scratch::Frame& frame) const;

 private:
  void run(Pass& pass, const Tensor& x, const Tensor& bias, const Tensor& y) const;

  int site_;
  double probability_;
};

/// The sites of the whole model by number: "embed", "layers.0.attention", "layers.0.mlp",
/// "layers.1.attention",
/// ...; none for a model without dropout.
std::vector<std::string> dropout_sites(const ModelConfig& model);
constexpr int embedding_dropout_site = 0;
constexpr int attention_dropout_site(int layer) {
  return 1 + 2 * layer;
}
constexpr int mlp_dropout_site(int layer) {
  return 2 + 2 * layer;
}
/// The domains of the sites' streams in a step (from 1), by number: [sites].
void dropout_domains(const std::vector<std::string>& sites, int64_t step, uint64_t* domains);

}  // namespace triax
