#pragma once

#include <string>

#include "parallel/module.h"

namespace triax {

/// The token table [V, H] with its rows cut over the tensor axis: y[t] = table[pass.ids[t]]. A rank looks up
/// the ids of its rows, others give zero, and one all-reduce makes the sum whole. Backward is local.
/// (Megatron-LM's VocabParallelEmbedding.) With sequence parallelism y and dy are [T/t, H]: a reduce-scatter,
/// and a gather in the backward; the ids are those of all rows.
class VocabularyEmbedding {
 public:
  VocabularyEmbedding(std::string name, int64_t vocabulary, int64_t hidden, float init_stddev);
  void declare(ParamStore& params);
  void forward(Pass& pass, const Tensor& y) const;
  void backward_weight(Pass& pass, const Tensor& dy) const;

 private:
  ParamSpec spec_;
  int weight_ = -1;
  int64_t first_row_ = 0, rows_ = 0;
};

/// Logits and cross-entropy over a vocabulary that is cut by the tensor axis. Logits are made chunk by chunk
/// of tokens and never gathered: per chunk one all-reduce each of the maximum, of the sum of exponentials and
/// of the target's logit.
class VocabularyHead {
 public:
  /// Elements of a chunk's logits. A chunk's three products read the weight twice and its gradient once,
  /// whatever its tokens: many share that (docs/performance.md).
  static constexpr int64_t usual_chunk = int64_t{26} << 20;
  /// `tied`: the weight is the embedding's.
  VocabularyHead(std::string name, int64_t vocabulary, int64_t hidden, bool tied, float init_stddev,
                 int64_t chunk_elements = usual_chunk);
  void declare(ParamStore& params);
  /// Tokens of a chunk: a multiple of 64, or all; chunks are about even.
  int64_t chunk_tokens(int64_t tokens) const;

  /// Adds the tokens' losses to *pass.loss (exactly; the same on all tensor ranks). Unless
  /// pass.evaluate: dx [T, H], which may be x, = gradient of loss * pass.loss_scale, summed over the tensor
  /// group, and dW accumulated. With sequence parallelism x and dx are [T/t, H]; the targets and the losses
  /// are those of all rows.
  void loss(Pass& pass, const Tensor& x, const Tensor& dx) const;
  /// The logits [V], f32 and without the padding, of one row x [1, H], gathered over the tensor group: the
  /// same on all its ranks.
  void logits(Pass& pass, const Tensor& x, const Tensor& out) const;
  /// Valid columns of this rank, and columns in memory.
  int64_t valid() const { return valid_; }
  int64_t rows() const { return rows_; }

 private:
  /// This rank's columns of the logits [T, V/t] of x [T, H]; no communication.
  void local_logits(Pass& pass, const Tensor& x, const Tensor& out) const;

  ParamSpec spec_;
  int64_t chunk_elements_;
  int weight_ = -1;
  int64_t first_row_ = 0, valid_ = 0, rows_ = 0;
};

}  // namespace triax
