#include "model/ends.h"

namespace triax {

namespace {

constexpr const char* table_name = "embed.tokens.weight";

}  // namespace

Embedding::Embedding(const ModelConfig& model)
    : hidden_(model.hidden_size),
      max_positions_(model.max_position_embeddings),
      stddev_(static_cast<float>(model.initializer_range)),
      learned_positions_(model.architecture == Architecture::gpt2),
      tokens_(table_name, model.vocab_size, model.hidden_size, stddev_),
      dropout_(embedding_dropout_site, model.hidden_dropout) {}

void Embedding::declare(ParamStore& params) {
  tokens_.declare(params);
  if (learned_positions_)
    positions_ = params.declare(
        {{"embed.positions.weight", {max_positions_, hidden_}, {}, {Init::Kind::normal, stddev_}, false}});
}

void Embedding::plan(Placement& slot, const ActivationShape& shape) {
  grad_y_.plan(slot, shape.split_backward, "gradient of embedding", shape.activation(), shape.dtype);
}

void Embedding::forward(Pass& pass, const Tensor&, const Tensor& y) {
  Context& c = pass.context;
  tokens_.forward(pass, y);
  if (learned_positions_ && pass.cache)
    c.kernels.position_forward(
        c.device, {y[0], max_positions_, hidden_, pass.position, c.params.weight(positions_), y});
  else if (learned_positions_)
    c.kernels.position_forward(
        c.device, {y[0], pass.sequence, hidden_, pass.first_row(), c.params.weight(positions_), y});
  dropout_.apply(pass, y, Tensor());
}

void Embedding::accumulate(Pass& pass, const Tensor& dy) const {
  Context& c = pass.context;
  Scratch::Frame frame(c.scratch);
  const Tensor d = dropout_.gradient(pass, dy, frame);
  tokens_.backward_weight(pass, d);
  if (learned_positions_)
    c.kernels.position_backward(
        c.device, {d[0], pass.sequence, hidden_, pass.first_row(), d, c.params.grad(positions_).f32()});
}

void Embedding::backward_input(Pass& pass, const Tensor&, const Tensor& dy, const Tensor&) {
  if (pass.weights_now) return accumulate(pass, dy);
  pass.context.device.copy(grad_y_.kept(pass).raw(), dy.raw(), dy.bytes());
}

void Embedding::backward_weight(Pass& pass, const Tensor&) {
  accumulate(pass, grad_y_.kept(pass));
}

Head::Head(const ModelConfig& model)
    : norm_("final_norm", model),
      vocabulary_(model.tie_word_embeddings ? table_name : "lm_head.weight", model.vocab_size,
                  model.hidden_size, model.tie_word_embeddings, static_cast<float>(model.initializer_range)) {
}

void Head::declare(ParamStore& params) {
  norm_.declare(params);
  vocabulary_.declare(params);
}

void Head::forward(Pass& pass, const Tensor& x_all, const Tensor& y) {
  if (!pass.logits && !pass.loss) return;  // rows of a prompt that nobody asks about
  Scratch::Frame frame(pass.context.scratch);
  const Tensor x = pass.logits ? x_all.rows(x_all[0] - 1, 1) : x_all;
  const NormState state{x, frame.take("final_norm mean", {x[0]}), frame.take("final_norm rstd", {x[0]})};
  const Tensor normed = frame.take("final_norm out", x.shape(), x.dtype());
  norm_.forward(pass, state, normed);
  if (pass.logits) return vocabulary_.logits(pass, normed, pass.logits);
  vocabulary_.loss(pass, normed, normed);  // its gradient in its place
  if (pass.evaluate) return;
  // The norm's state is scratch, so its weights' gradients can't wait, whatever the schedule.
  Pass now = pass;
  now.weights_now = true;
  norm_.backward_input(now, state, normed, Tensor(), y);
}

}  // namespace triax
