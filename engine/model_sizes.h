#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace triax {

/// A published model: its shape, as its authors' config.json or paper gives it, and the batch and learning
/// rate that it was trained with.
struct ModelSize {
  std::string family;                ///< gpt2 | llama | qwen2
  std::string name;                  ///< "124m"
  std::vector<std::string> aliases;  ///< other words for it, for classes of size: "1b" for the 1.1b
  std::string title;                 ///< what it is called: "GPT-2 small"
  ModelConfig model;
  int64_t sequence_length = 0;  ///< of its pre-training
  int64_t batch_tokens = 0;     ///< tokens per step of its pre-training
  double lr = 0;
};

/// All that `triax init` knows, by family and size. Sources: GPT-2 (Radford et al. 2019; batch and learning
/// rate from table 2.1 of Brown et al. 2020, as for the GPT-3 shapes), LLaMA-2 (Touvron et al. 2023), Llama 3
/// (2024), TinyLlama (Zhang et al. 2024), SmolLM (Hugging Face 2024), Qwen2 (Yang et al. 2024; its batches
/// and learning rates are not published: those of LLaMA-2).
const std::vector<ModelSize>& model_sizes();

/// The one of that family and size or alias; a usage error lists what it can be.
const ModelSize& model_size(const std::string& family, const std::string& size);

/// The families, in order: "gpt2", "llama", "qwen2".
std::vector<std::string> model_families();

}  // namespace triax
