#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace triax {

struct GenerateOptions {
  std::string path;    ///< a run's folder, its checkpoints folder, or one checkpoint
  std::string prompt;  ///< bytes
  int64_t tokens = 200;
  double temperature = 0.8;  ///< 0: always the likeliest token
  int64_t top_k = 40;        ///< of how many likeliest tokens one is drawn; 0: of all
  uint64_t seed = 1;
  int threads = 0;  ///< 0: all cores
};

/// Continues the prompt with a model of bytes, token by token, on one rank. Each token is handed to `emit`
/// when it is drawn. The whole window is computed again for every token (a key-value cache is not kept).
/// Errors: no complete checkpoint at the path, a model whose tokens are not bytes, an empty prompt.
void generate(const GenerateOptions& options, const std::function<void(unsigned char)>& emit);

/// The newest complete checkpoint of a run's folder or checkpoints folder, or the checkpoint itself. Usage
/// error when there is none, saying where it looked.
std::string locate_checkpoint(const std::string& path);

}  // namespace triax
