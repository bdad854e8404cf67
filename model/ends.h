#pragma once

#include "model/dropout.h"
#include "model/norm.h"
#include "parallel/vocabulary.h"

namespace triax {

/// First module of the first stage: token table (and learned positions for gpt2), then dropout. Takes
/// pass.ids instead of x; has no dx.
class Embedding final : public Module {
 public:
  explicit Embedding(const ModelConfig& model);
  const std::string& name() const override { return name_; }
  void declare(ParamStore& params) override;
  void plan(Placement& slot, const ActivationShape& shape) override;
  void forward(Pass& pass, const Tensor& x, const Tensor& y) override;
  void backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void backward_weight(Pass& pass, const Tensor& x) override;

 private:
  void accumulate(Pass& pass, const Tensor& dy) const;

  std::string name_ = "embed";
  int64_t hidden_, max_positions_;
  float stddev_;
  bool learned_positions_;
  VocabularyEmbedding tokens_;
  DropoutSite dropout_;
  int positions_ = -1;
  Place grad_y_;
};

/// Last module of the last stage: final norm, logits and loss in one. It has no y: in training its forward
/// leaves dx there, for which y may be x, and has accumulated its weights' gradients, so that nothing is left
/// for the backward.
class Head final : public Module {
 public:
  explicit Head(const ModelConfig& model);
  const std::string& name() const override { return name_; }
  void declare(ParamStore& params) override;
  void plan(Placement&, const ActivationShape&) override {}
  void forward(Pass& pass, const Tensor& x, const Tensor& y) override;
  void backward_input(Pass&, const Tensor&, const Tensor&, const Tensor&) override {}
  void backward_weight(Pass&, const Tensor&) override {}

 private:
  std::string name_ = "head";
  Norm norm_;
  VocabularyHead vocabulary_;
};

}  // namespace triax
