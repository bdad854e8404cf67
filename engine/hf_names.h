#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "parallel/param_spec.h"

namespace triax {

/// Where a logical parameter stands in a model of Hugging Face's transformers.
struct HfPlace {
  std::string tensor;       ///< "transformer.h.0.attn.c_attn.weight"
  bool transposed = false;  ///< a matrix of GPT-2's Conv1D, kept as [in, out]
  int part = 0, parts = 1;  ///< which of so many parameters of equal shape that lie side by side along `out`

  /// The shape of that tensor, given the parameter's [out, in] or [n].
  Shape shape(const Shape& parameter) const;
};

/// Throws Error for a name that the architecture does not have.
HfPlace hf_place(const ModelConfig& model, const std::string& parameter);

/// A tensor of transformers' model and the logical parameters that it is made of, by part.
struct HfTensor {
  std::string name;
  Shape shape;
  bool transposed = false;
  std::vector<ParamSpec> parameters;
};

/// All tensors of the model as transformers saves it, in logical order; a tied head is not among them.
std::vector<HfTensor> hf_tensors(const ModelConfig& model);

/// Whether a tensor holds no weight but a constant that older versions of transformers saved as well: causal
/// masks and rotary frequencies.
bool is_hf_constant(const std::string& tensor);

/// What names begin with in a model with a head, and do not in the bare one: "transformer." or "model.".
std::string hf_prefix(const ModelConfig& model);

}  // namespace triax
