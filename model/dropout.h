#pragma once

#include <string>

#include "parallel/module.h"

namespace triax {

/// Dropout at one site of the model. Which elements are kept is a function of (seed, step, site, index of the
/// element in the global batch [sequence, token, hidden]) by Philox, so that the bits are the same on every
/// grid, schedule and split of the batch, and when forward runs again. Off in evaluations.
class DropoutSite {
 public:
  /// `site`: "layers.3.mlp".
  DropoutSite(std::string site, double probability) : site_(std::move(site)), probability_(probability) {}
  bool on(const Pass& pass) const { return probability_ > 0 && !pass.evaluate; }
  /// x [rows, H] = dropout(x + bias), where bias (may be empty) is what the consumer of x was to add; returns
  /// what is left for it to add. Off: x stays, and bias is returned.
  Tensor apply(Pass& pass, const Tensor& x, const Tensor& bias) const;
  /// The gradient of apply's input: scratch memory of the frame; dy itself when off.
  Tensor gradient(Pass& pass, const Tensor& dy, Scratch::Frame& frame) const;

 private:
  void run(Pass& pass, const Tensor& x, const Tensor& bias, const Tensor& y) const;

  std::string site_;
  double probability_;
};

}  // namespace triax
