#include "parallel/linear.h"

#include "parallel/sequence.h"

namespace triax {

namespace {

// y [T, N] = x [T, K] w[N, K]^T
Gemm product(const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& bias) {
  Gemm op;
  op.transpose_b = true;
  op.m = x[0], op.n = w[0], op.k = w[1];
  op.a = x, op.lda = x[1];
  op.b = w, op.ldb = w[1];
  op.c = y, op.ldc = y[1];
  op.bias = bias;
  return op;
}
void multiply(Pass& pass, const Tensor& x, const Tensor& w, const Tensor& y, const Tensor& bias) {
  pass.context.kernels.gemm(pass.context.device, product(x, w, y, bias));
}

// dx [T, K] = dy [T, N] w [N, K]
Gemm product_back(const Tensor& dy, const Tensor& w, const Tensor& dx) {
  Gemm op;
  op.m = dy[0], op.n = w[1], op.k = w[0];
  op.a = dy, op.lda = dy[1];
  op.b = w, op.ldb = w[1];
  op.c = dx, op.ldc = dx[1];
  return op;
}
void multiply_back(Pass& pass, const Tensor& dy, const Tensor& w, const Tensor& dx) {
  pass.context.kernels.gemm(pass.context.device, product_back(dy, w, dx));
}

// dw [N, K] += dy [T, N]^T x [T, K]
void accumulate_weight(Pass& pass, const Tensor& dy, const Tensor& x, int weight) {
  const auto [dw, beta] = pass.context.params.grad_sum(weight);
  Gemm op;
  op.transpose_a = true;
  op.m = dw[0], op.n = dw[1], op.k = dy[0];
  op.a = dy, op.lda = dy[1];
  op.b = x, op.ldb = x[1];
  op.c = dw, op.ldc = dw[1];
  op.beta = beta;
  pass.context.kernels.gemm(pass.context.device, op);
}

void accumulate_bias(Pass& pass, const Tensor& dy, const Tensor& db) {
  pass.context.kernels.bias_backward(pass.context.device, {dy[0], dy[1], dy, db.f32()});
}

/// body(first, rows) for pieces of `piece` rows, the last one shorter.
template <class Body>
void for_pieces(int64_t rows, int64_t piece, const Body& body) {
  check(rows == 0 || piece > 0, "{} rows in pieces of {}", rows, piece);
  for (int64_t first = 0; first < rows; first += piece) body(first, std::min(piece, rows - first));
}

Init normal(float stddev) {
  return {Init::Kind::normal, stddev};
}

}  // namespace

void copy_columns(Pass& pass, const Tensor& full, int part, const Tensor& local, bool into_full) {
  const size_t width = static_cast<size_t>(local[1]) * size_of(local.dtype());
  const size_t stride = static_cast<size_t>(full[1]) * size_of(full.dtype());
  char* place = static_cast<char*>(full.raw()) + static_cast<size_t>(part) * width;
  Device& device = pass.context.device;
  if (into_full)
    device.copy_rows(place, stride, local.raw(), width, width, local[0]);
  else
    device.copy_rows(local.raw(), width, place, stride, width, local[0]);
}

ColumnLinear::ColumnLinear(std::vector<Projection> projections, int64_t in, bool bias, float init_stddev)
    : projections_(std::move(projections)), in_(in), with_bias_(bias), stddev_(init_stddev) {}

void ColumnLinear::declare(ParamStore& params) {
  std::vector<ParamSpec> weights, biases;
  for (const Projection& p : projections_) {
    weights.push_back({p.name + ".weight", {p.out, in_}, {{0, "tp", p.parts}}, normal(stddev_), true});
    biases.push_back({p.name + ".bias", {p.out}, {{0, "tp", p.parts}}, {}, false});
  }
  weight_ = params.declare(std::move(weights), ParamStore::GradKind::products);
  if (!with_bias_) return;
  bias_ = params.declare(std::move(biases));
  for (size_t i = params.entries().size() - projections_.size(); i < params.entries().size(); ++i)
    bias_rows_.push_back(params.entries()[i].memory.numel());
}

void ColumnLinear::forward(Pass& pass, const Tensor& x, const Tensor& y, bool add_bias) const {
  const ParamStore& params = pass.context.params;
  Scratch::Frame frame(pass.context.scratch);
  multiply(pass, gather_rows(pass, x, frame), params.weight(weight_), y,
           with_bias_ && add_bias ? params.weight(bias_) : Tensor());
}

void ColumnLinear::forward_gelu(Pass& pass, const Tensor& x, const Tensor& z, const Tensor& a) const {
  const ParamStore& params = pass.context.params;
  Scratch::Frame frame(pass.context.scratch);
  const Gemm op = product(gather_rows(pass, x, frame), params.weight(weight_), a, params.weight(bias_));
  pass.context.kernels.gemm_gelu(pass.context.device, {op, z});
}

void ColumnLinear::backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) const {
  const bool alone = pass.context.mesh.tp().size() == 1;  // no message to hide
  if (alone && pass.weights_now) backward_weight(pass, x, dy);
  Scratch::Frame frame(pass.context.scratch);
  const Tensor addends = addends_of(pass, dx, frame);
  multiply_back(pass, dy, pass.context.params.weight(weight_), addends);
  Pending sum = sum_rows(pass, addends, dx);
  if (!pass.context.overlap) sum.wait();
  if (!alone && pass.weights_now) backward_weight(pass, x, dy);  // under the message
  sum.wait();
}

void ColumnLinear::backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const {
  {
    Scratch::Frame frame(pass.context.scratch);
    accumulate_weight(pass, dy, gather_rows(pass, x, frame), weight_);
  }
  if (!with_bias_) return;
  const Tensor grad = pass.context.params.grad(bias_);
  accumulate_bias(pass, dy, grad);
  int64_t first = 0;
  for (size_t i = 0; i < projections_.size(); first += bias_rows_[i++])
    if (projections_[i].idle_bias) {
      const Tensor idle = grad.rows(first, bias_rows_[i]);
      pass.context.device.fill_zero(idle.raw(), idle.bytes());
    }
}

void ColumnLinear::forward_gathered(Pass& pass, const Tensor& x, const Tensor& y) const {
  Communicator& tp = pass.context.mesh.tp();
  Scratch::Frame frame(pass.context.scratch);
  const int64_t t = y[0], local = pass.context.params.weight(weight_)[0];
  Tensor mine = frame.take("local columns", {t, local}, y.dtype());
  Tensor all = frame.take("gathered columns", {tp.size() * t, local}, y.dtype());
  forward(pass, x, mine);
  tp.all_gather(mine, all).wait();
  for (int part = 0; part < tp.size(); ++part) copy_columns(pass, y, part, all.rows(part * t, t), true);
}

void ColumnLinear::scatter_gradient(Pass& pass, const Tensor& dy_full, const Tensor& dy_local) const {
  copy_columns(pass, dy_full, pass.context.mesh.tp().rank(), dy_local, false);
}

RowLinear::RowLinear(std::string name, int64_t in, int64_t out, bool bias, float init_stddev)
    : name_(std::move(name)), in_(in), out_(out), with_bias_(bias), stddev_(init_stddev) {}

void RowLinear::declare(ParamStore& params) {
  weight_ = params.declare({{name_ + ".weight", {out_, in_}, {{1, "tp", 0}}, normal(stddev_), true}},
                           ParamStore::GradKind::products);
  if (with_bias_) bias_ = params.declare({{name_ + ".bias", {out_}, {}, {}, false}});
}

void RowLinear::forward(Pass& pass, const RowPieces& x, const Tensor& y) const {
  Scratch::Frame frame(pass.context.scratch);
  const Tensor addends = addends_of(pass, y, frame), w = pass.context.params.weight(weight_);
  for_pieces(addends[0], x.piece(), [&](int64_t first, int64_t rows) {
    multiply(pass, x.get(first, rows), w, addends.rows(first, rows), Tensor());
  });
  sum_rows(pass, addends, y).wait();
}

void RowLinear::backward_input(Pass& pass, const RowPieces& x, const Tensor& dy, const RowPieces& dx,
                               const Tensor& z) const {
  Scratch::Frame frame(pass.context.scratch);
  const Tensor all = gather_rows(pass, dy, frame), w = pass.context.params.weight(weight_);
  for_pieces(all[0], dx.piece(), [&](int64_t first, int64_t rows) {
    const Tensor dy_piece = all.rows(first, rows);
    const Gemm op = product_back(dy_piece, w, dx.get(first, rows));
    if (z)
      pass.context.kernels.gemm_gelu_backward(pass.context.device, {op, z.rows(first, rows)});
    else
      pass.context.kernels.gemm(pass.context.device, op);
    const Tensor x_piece = x.get(first, rows);
    if (pass.weights_now) accumulate_weight(pass, dy_piece, x_piece, weight_);
  });
  if (pass.weights_now) accumulate_own_bias(pass, dy);
}

void RowLinear::backward_weight(Pass& pass, const RowPieces& x, const Tensor& dy) const {
  Scratch::Frame frame(pass.context.scratch);
  const Tensor all = gather_rows(pass, dy, frame);
  for_pieces(all[0], x.piece(), [&](int64_t first, int64_t rows) {
    accumulate_weight(pass, all.rows(first, rows), x.get(first, rows), weight_);
  });
  accumulate_own_bias(pass, dy);
}

void RowLinear::accumulate_own_bias(Pass& pass, const Tensor& dy_local) const {
  if (with_bias_) accumulate_bias(pass, dy_local, pass.context.params.grad(bias_));
}

void RowLinear::split_input(Pass& pass, const Tensor& x_full, const Tensor& x_local) const {
  copy_columns(pass, x_full, pass.context.mesh.tp().rank(), x_local, false);
}

void RowLinear::gather_gradient(Pass& pass, const Tensor& dx_local, const Tensor& dx_full) const {
  Communicator& tp = pass.context.mesh.tp();
  Scratch::Frame frame(pass.context.scratch);
  const int64_t t = dx_local[0];
  Tensor all = frame.take("gathered columns", {tp.size() * t, dx_local[1]}, dx_local.dtype());
  tp.all_gather(dx_local, all).wait();
  for (int part = 0; part < tp.size(); ++part) copy_columns(pass, dx_full, part, all.rows(part * t, t), true);
}

}  // namespace triax
