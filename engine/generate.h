#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/inference.h"
#include "engine/open_model.h"
#include "engine/sample.h"
#include "engine/train.h"

namespace triax {

/// What is to be generated; the same on all ranks.
struct GenerateRequest {
  std::vector<int32_t> prompt;  ///< ids, at least one
  int64_t tokens = 200;         ///< to draw, at most
  int samples = 1;              ///< continuations of the prompt, one after the other
  SamplingOptions sampling;
  uint64_t seed = 1;
  int64_t vocabulary = 0;           ///< ids below it may be drawn; 0: the model's
  std::optional<int32_t> end = {};  ///< the token that ends a text; it is not handed out
};

/// Why a continuation ended.
enum class TextEnd { tokens, end_of_text, positions, interrupted };
std::string_view name_of(TextEnd end);

/// One continuation.
struct Continuation {
  std::vector<int32_t> ids;
  TextEnd end = TextEnd::tokens;
};

struct Generated {
  std::vector<Continuation> samples;
  double load_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  int64_t decoded = 0;  ///< tokens that were computed after the prompt
  std::vector<MemoryLine> memory;
};

/// Usage error when the prompt does not fit the model: no token, more than max_position_embeddings - 1 of
/// them, or one that it does not have.
void check_prompt(const RunConfig& config, const GenerateRequest& request);

/// The arenas of a rank for the request.
InferenceShape shape_of(const RunConfig& config, const GenerateRequest& request);

/// Loads the model on the job's grid and continues the prompt, with a key-value cache: the prompt in pieces
/// of `prompt_piece` tokens, then one position a step. Token n of sample s is a function of the logits, the
/// seed, s and n, so that a grid that computes the same logits draws the same text. A text ends after
/// request.tokens, with request.end, or when prompt and text are max_position_embeddings tokens together;
/// nothing slides. `emit` is called on rank 0 as soon as a token is drawn. A signal in `stop`, on any rank,
/// ends it (TextEnd::interrupted). `local_size`: ranks of this host, this one as `local_rank`. Collective;
/// all ranks return the same samples.
Generated generate(const RunConfig& config, const ModelSource& source, Communicator& world, int local_rank,
                   int local_size, const GenerateRequest& request, const StopFlag& stop,
                   const std::function<void(int sample, int32_t token)>& emit);

/// The same with a model whose weights are there, of shape_of(config, request).
Generated continue_prompt(const RunConfig& config, InferenceModel& model, Mesh& mesh,
                          const GenerateRequest& request, const StopFlag& stop,
                          const std::function<void(int sample, int32_t token)>& emit);

inline constexpr int64_t prompt_piece = 256;  ///< tokens of a prompt that are computed at once

}  // namespace triax
