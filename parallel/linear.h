#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "parallel/module.h"

namespace triax {

// The conjugate pair of Megatron-LM (Shoeybi et al. 2019): f is the identity forward and an all-reduce
// backward (ColumnLinear's input), g an all-reduce forward and the identity backward (RowLinear's output).
// With sequence parallelism the identities become all-gathers of rows and the all-reduces reduce-scatters
// (sequence.h): x of a ColumnLinear and y of a RowLinear, and their gradients, are then [T/t, ...].

/// Memory for an operand's rows, [T, n]: of all of them, or of a piece that the next one is put in, too.
class RowPieces {
 public:
  RowPieces(const Tensor& whole)
      : piece_(whole.shape().rank() > 0 ? whole[0] : 0), get_([whole](int64_t first, int64_t rows) {
          return whole.shape().rank() > 0 ? whole.rows(first, rows) : whole;
        }) {}
  /// `get(first, rows)`: where rows [first, first + rows) lie; with at most `piece` rows, in ascending order.
  RowPieces(int64_t piece, std::function<Tensor(int64_t first, int64_t rows)> get)
      : piece_(piece), get_(std::move(get)) {}
  int64_t piece() const { return piece_; }
  Tensor get(int64_t first, int64_t rows) const { return get_(first, rows); }

 private:
  int64_t piece_;
  std::function<Tensor(int64_t, int64_t)> get_;
};

/// One of the projections that a ColumnLinear runs side by side.
struct Projection {
  std::string name;  ///< logical name without ".weight"
  int64_t out = 0;   ///< rows of the whole matrix
  int parts = 0;     ///< as Shard::parts
  /// The bias has no effect, so that its gradient is zero by mathematics; rounding would leave noise, which
  /// AdamW would blow up to full steps.
  bool idle_bias = false;
};

/// y = x W^T + b with the rows of W cut over the tensor axis: each rank computes its columns of y from the
/// whole x.
///     x [T, in] -> y [T, sum of out/t]
class ColumnLinear {
 public:
  ColumnLinear(std::vector<Projection> projections, int64_t in, bool bias, float init_stddev);
  /// Cuts no projection in more parts than there are tensor ranks: the parts of fewer heads are given whole,
  /// of more are shared out.
  void limit_parts(int tensor) {
    for (Projection& p : projections_) p.parts = std::min(p.parts, tensor);
  }
  void declare(ParamStore& params);

  /// With add_bias false the bias is left to the activation behind it.
  void forward(Pass& pass, const Tensor& x, const Tensor& y, bool add_bias = true) const;
  /// z = x W^T + b and a = gelu(z), for kernels that have it in one (Kernels::fuses_gelu).
  void forward_gelu(Pass& pass, const Tensor& x, const Tensor& z, const Tensor& a) const;
  /// dx = dy W, summed over the tensor group (f), under the GEMM of backward_weight when `pass.weights_now`
  /// (else x is not read). On one tensor rank dx may lie where x does.
  void backward_input(Pass& pass, const Tensor& x, const Tensor& dy, const Tensor& dx) const;
  /// dW += dy^T x, db += sum of dy. With sequence parallelism x is gathered a second time, so that it need
  /// not be kept whole.
  void backward_weight(Pass& pass, const Tensor& x, const Tensor& dy) const;

  /// y [T, sum of out] on every rank: the local columns, gathered (for one projection).
  void forward_gathered(Pass& pass, const Tensor& x, const Tensor& y) const;
  /// The local columns of a gradient of forward_gathered's y, ready for backward_input.
  void scatter_gradient(Pass& pass, const Tensor& dy_full, const Tensor& dy_local) const;

  Tensor bias(const Pass& pass) const { return pass.context.params.weight(bias_); }
  bool has_bias() const { return bias_ >= 0; }

 private:
  std::vector<Projection> projections_;
  int64_t in_;
  bool with_bias_;
  float stddev_;
  int weight_ = -1, bias_ = -1;
  std::vector<int64_t> bias_rows_;  // of each projection, on this rank
};

/// y = sum over the tensor group of x W^T, with the columns of W cut: each rank's x holds its columns.
///     x [T, in/t] -> y [T, out]
/// The bias is not added here but once, after the reduction, by whoever consumes y (bias()), because the
/// residual sum does it for nothing.
class RowLinear {
 public:
  RowLinear(std::string name, int64_t in, int64_t out, bool bias, float init_stddev);
  void declare(ParamStore& params);

  /// y without the bias.
  void forward(Pass& pass, const RowPieces& x, const Tensor& y) const;
  /// dx = dy W; no communication (g). With z, x is gelu(z), and dx, then whole, the gradient of z
  /// (Kernels::fuses_gelu). Else, piece by piece of dx: its memory is asked for and written, then x is asked
  /// for, which may lie in the same memory, and which only the weights' gradients read.
  void backward_input(Pass& pass, const RowPieces& x, const Tensor& dy, const RowPieces& dx,
                      const Tensor& z = {}) const;
  /// dW += dy^T x, db += sum of dy: the same on all tensor ranks; with sequence parallelism over this rank's
  /// rows, to be added up once per step. Pieces give the bits of the whole where they are those of
  /// Kernels::product_depth.
  void backward_weight(Pass& pass, const RowPieces& x, const Tensor& dy) const;

  /// With the whole x [T, in] on every rank: this rank's columns of it ...
  void split_input(Pass& pass, const Tensor& x_full, const Tensor& x_local) const;
  /// ... and the gradient of the whole, gathered.
  void gather_gradient(Pass& pass, const Tensor& dx_local, const Tensor& dx_full) const;

  /// [out], or an empty tensor without a bias.
  Tensor bias(const Pass& pass) const { return bias_ >= 0 ? pass.context.params.weight(bias_) : Tensor(); }

 private:
  void accumulate_own_bias(Pass& pass, const Tensor& dy_local) const;

  std::string name_;
  int64_t in_, out_;
  bool with_bias_;
  float stddev_;
  int weight_ = -1, bias_ = -1;
};

/// Columns [rank * n/t, ...) of a [T, n] into [T, n/t], on the host's or device's memory.
void copy_columns(Pass& pass, const Tensor& full, int part, const Tensor& local, bool into_full);

}  // namespace triax
