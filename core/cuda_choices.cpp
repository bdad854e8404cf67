#include "core/cuda_choices.h"

#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace triax {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

CudaChoices cuda_choices() {
  CudaChoices choices;
  using Attention = CudaChoices::Attention;
  const std::string_view attention = variable("TRIAX_CUDA_ATTENTION");
  if (attention == "cudnn")
    choices.attention = Attention::cudnn;
  else if (attention == "cudnn-deterministic")
    choices.attention = Attention::cudnn_deterministic;
  else if (!attention.empty() && attention != "own")
    fail_usage("TRIAX_CUDA_ATTENTION is '{}'; it can be own, cudnn or cudnn-deterministic", attention);
  const std::string_view gelu = variable("TRIAX_CUDA_GELU");
  if (!gelu.empty() && gelu != "fused" && gelu != "apart")
    fail_usage(
        "TRIAX_CUDA_GELU is '{}'; it can be fused (at the end of a product) or apart (a kernel of its own)",
        gelu);
  choices.gelu_apart = gelu == "apart";
  const std::string_view tf32 = variable("TRIAX_CUDA_TF32");
  if (!tf32.empty() && tf32 != "0" && tf32 != "1")
    fail_usage(
        "TRIAX_CUDA_TF32 is '{}'; it can be 0 (products of fp32 in full) or 1 (their operands rounded to "
        "TF32)",
        tf32);
  choices.tf32 = tf32 == "1";
  return choices;
}

bool cuda_launch_blocking() {
  const std::string_view blocking = variable("CUDA_LAUNCH_BLOCKING");
  return !blocking.empty() && blocking[0] != '0';
}

}  // namespace triax
