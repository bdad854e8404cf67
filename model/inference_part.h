#pragma once

#include <map>
#include <memory>
#include <vector>

#include "parallel/module.h"

namespace triax {

/// A part of the model that only runs forward: no gradient is computed and nothing is kept of a pass but, for
/// generation, the keys and values of the sequence. A module's activations lie in scratch memory while it
/// runs.
class InferencePart {
 public:
  InferencePart(std::vector<std::unique_ptr<Module>> modules, bool first, bool last)
      : modules_(std::move(modules)), first_(first), last_(last) {}
  void declare(ParamStore& params);
  /// Lays out the keys and values of a sequence of up to `positions`.
  void plan_cache(int64_t positions, DType dtype);
  const Placement& cache() const { return cache_; }

  /// y = the part's output for x, [T, H] both, where T may differ from pass to pass; the first part takes
  /// pass.ids instead of x, the last one leaves pass.loss or pass.logits instead of y. `dtype`: of
  /// activations.
  void forward(Pass& pass, const Tensor& x, const Tensor& y, int64_t hidden, DType dtype);

 private:
  /// Where each module's activations lie in a pass of B sequences of S tokens.
  const std::vector<Placement>& layouts(const Pass& pass, int64_t hidden, DType dtype);

  std::vector<std::unique_ptr<Module>> modules_;
  bool first_, last_;
  Placement cache_;
  std::map<std::pair<int64_t, int64_t>, std::vector<Placement>> layouts_;  // by B, S
};

}  // namespace triax
