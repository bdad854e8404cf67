#include "parallel/vocabulary.h"

#include <algorithm>

#include "parallel/sequence.h"

namespace triax {

namespace {

ParamSpec table_spec(std::string name, int64_t vocabulary, int64_t hidden, float stddev) {
  return {std::move(name), {vocabulary, hidden}, {{0, "tp", 0}}, {Init::Kind::normal, stddev}, true};
}

}  // namespace

VocabularyEmbedding::VocabularyEmbedding(std::string name, int64_t vocabulary, int64_t hidden,
                                         float init_stddev)
    : spec_(table_spec(std::move(name), vocabulary, hidden, init_stddev)) {}

void VocabularyEmbedding::declare(ParamStore& params) {
  weight_ = params.declare({spec_}, ParamStore::GradKind::lookups);
  const LocalParam& local = params.entries().back();
  first_row_ = local.box.offset[0];
  rows_ = local.box.extent[0];
}

void VocabularyEmbedding::forward(Pass& pass, const Tensor& y) const {
  Context& c = pass.context;
  Scratch::Frame frame(c.scratch);
  const Tensor addends = addends_of(pass, y, frame);
  c.kernels.embedding_forward(c.device, {pass.ids.numel(), y[1], rows_, first_row_, pass.ids.i32(),
                                         c.params.weight(weight_), addends});
  sum_rows(pass, addends, y).wait();
}

void VocabularyEmbedding::backward_weight(Pass& pass, const Tensor& dy) const {
  Context& c = pass.context;
  Scratch::Frame frame(c.scratch);
  const Tensor all = gather_rows(pass, dy, frame);
  const auto [into, by_slot] = c.params.lookup_grad(weight_);
  if (by_slot)
    c.kernels.embedding_backward(c.device,
                                 {pass.slots.numel(), dy[1], into[0], 0, pass.slots.i32(), all, into.f32()});
  else
    c.kernels.embedding_backward(
        c.device, {pass.ids.numel(), dy[1], rows_, first_row_, pass.ids.i32(), all, into.f32()});
}

VocabularyHead::VocabularyHead(std::string name, int64_t vocabulary, int64_t hidden, bool tied,
                               float init_stddev, int64_t chunk_elements)
    : spec_(table_spec(std::move(name), vocabulary, hidden, init_stddev)), chunk_elements_(chunk_elements) {
  spec_.tied = tied;
}

void VocabularyHead::declare(ParamStore& params) {
  weight_ = params.declare({spec_}, ParamStore::GradKind::products);
  const LocalParam& local = params.entries().back();
  first_row_ = local.box.offset[0];
  valid_ = local.box.extent[0];
  rows_ = local.memory[0];
}

int64_t VocabularyHead::chunk_tokens(int64_t tokens) const {
  constexpr int64_t unit = 64;
  const int64_t fit = std::max<int64_t>(chunk_elements_ / std::max<int64_t>(rows_, 1) / unit, 1);
  const int64_t units = (tokens + unit - 1) / unit, chunks = (units + fit - 1) / fit;
  return std::min(tokens, (units + chunks - 1) / chunks * unit);
}

void VocabularyHead::local_logits(Pass& pass, const Tensor& x, const Tensor& out) const {
  Context& c = pass.context;
  const Tensor w = c.params.weight(weight_);
  Gemm op;
  op.transpose_b = true;
  op.m = x[0], op.n = rows_, op.k = x[1];
  op.a = x, op.lda = x[1];
  op.b = w, op.ldb = w[1];
  op.c = out, op.ldc = rows_;
  c.kernels.gemm(c.device, op);
}

void VocabularyHead::logits(Pass& pass, const Tensor& x, const Tensor& out) const {
  Communicator& tp = pass.context.mesh.tp();
  Scratch::Frame frame(pass.context.scratch);
  const Tensor mine = frame.take("logits of this rank", {1, rows_}),
               all = frame.take("logits", {tp.size() * rows_});
  local_logits(pass, x, mine);
  tp.all_gather(mine, all).wait();
  // Rows are dealt out in order and as many to each rank, so that all padding stands behind them.
  pass.context.device.copy(out.raw(), all.raw(), out.bytes());
}

void VocabularyHead::loss(Pass& pass, const Tensor& x_local, const Tensor& dx_local) const {
  Context& c = pass.context;
  const Kernels& k = c.kernels;
  Communicator& tp = c.mesh.tp();
  Scratch::Frame frame(c.scratch);
  const Tensor x = gather_rows(pass, x_local, frame);
  const Tensor dx = pass.evaluate ? dx_local : addends_of(pass, dx_local, frame);
  const int64_t tokens = x[0], hidden = x[1], most = chunk_tokens(tokens);
  const Tensor w = c.params.weight(weight_);
  const Tensor logits_memory = frame.take("logits of a chunk", {most, rows_}, x.dtype());
  const Tensor maximum_memory = frame.take("largest logit", {most});
  const Tensor sums_memory = frame.take("softmax denominator and target logit", {2, most});
  for (int64_t first = 0; first < tokens; first += most) {
    const int64_t n = std::min(most, tokens - first);
    const Tensor xc = x.rows(first, n), targets = pass.targets.rows(first, n);
    const Tensor z = logits_memory.rows(0, n), maximum = maximum_memory.rows(0, n);
    const Tensor sum_exp = sums_memory.reshape({2 * most}).rows(0, n);
    const Tensor target_logit = sums_memory.reshape({2 * most}).rows(n, n);
    local_logits(pass, xc, z);
    k.cross_entropy_max(c.device, {n, valid_, rows_, z, maximum.f32()});
    tp.all_reduce(maximum, maximum, ReduceOp::max).wait();
    k.cross_entropy_sum(c.device, {n, valid_, rows_, first_row_, z, maximum.f32(), targets.i32(),
                                   sum_exp.f32(), target_logit.f32()});
    const Tensor both = sums_memory.reshape({2 * most}).rows(0, 2 * n);
    tp.all_reduce(both, both, ReduceOp::sum).wait();
    k.cross_entropy_loss(c.device, {n, sum_exp.f32(), target_logit.f32(), targets.i32(), pass.loss});
    if (pass.evaluate) continue;
    k.cross_entropy_backward(c.device, {n, valid_, rows_, first_row_, z, maximum.f32(), sum_exp.f32(),
                                        targets.i32(), pass.loss_scale, z});
    Gemm to_weight;  // dW += dlogits^T x
    to_weight.transpose_a = true;
    to_weight.m = rows_, to_weight.n = hidden, to_weight.k = n;
    to_weight.a = z, to_weight.lda = rows_;
    to_weight.b = xc, to_weight.ldb = hidden;
    const auto [dw, beta] = c.params.grad_sum(weight_);
    to_weight.c = dw, to_weight.ldc = hidden;
    to_weight.beta = beta;
    k.gemm(c.device, to_weight);
    Gemm to_input;  // dx = dlogits W, after dW: it may lie over x
    to_input.m = n, to_input.n = hidden, to_input.k = rows_;
    to_input.a = z, to_input.lda = rows_;
    to_input.b = w, to_input.ldb = hidden;
    to_input.c = dx.rows(first, n), to_input.ldc = hidden;
    k.gemm(c.device, to_input);
  }
  if (!pass.evaluate) sum_rows(pass, dx, dx_local).wait();
}

}  // namespace triax
