#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "core/rng.h"
#include "parallel/backend.h"

namespace triax {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One rank that continues a prompt.
class Generator {
 public:
  Generator(const RunConfig& config, InferenceModel& model, Mesh& mesh, const GenerateRequest& request,
            const StopFlag& stop, const std::function<void(int, int32_t)>& emit)
      : positions_(config.model.max_position_embeddings),
        model_(model),
        mesh_(mesh),
        request_(request),
        stop_(stop),
        emit_(emit),
        logits_(mesh.last_stage() ? static_cast<size_t>(config.model.vocab_size) : 0),
        drawable_(request.vocabulary ? std::min(request.vocabulary, config.model.vocab_size)
                                     : config.model.vocab_size) {}

  /// Computes the prompt; its last logits begin every sample.
  void prefill() {
    const std::vector<int32_t>& prompt = request_.prompt;
    for (size_t at = 0; at < prompt.size();) {
      const size_t n = std::min(prompt.size() - at, static_cast<size_t>(model_.shape().sequence));
      const bool last = at + n == prompt.size();
      model_.extend({prompt.data() + at, n}, static_cast<int64_t>(at), last ? logits_ : std::span<float>());
      at += n;
    }
    after_prompt_ = logits_;
  }

  Continuation sample(int number) {
    Continuation text;
    logits_ = after_prompt_;
    const RandomStream random(request_.seed, fmt::format("generate sample {}", number));
    int64_t position = static_cast<int64_t>(request_.prompt.size());
    for (int64_t n = 0; n < request_.tokens; ++n) {
      if (position == positions_) {
        text.end = TextEnd::positions;
        break;
      }
      if (n > 0) model_.extend({&text.ids.back(), 1}, position - 1, logits_);
      const Choice choice = choose(random, static_cast<uint64_t>(n));
      if (choice.stop || (request_.end && choice.token == *request_.end)) {
        text.end = choice.stop ? TextEnd::interrupted : TextEnd::end_of_text;
        break;
      }
      text.ids.push_back(choice.token);
      if (mesh_.rank() == 0 && emit_) emit_(number, choice.token);
      ++position;
    }
    return text;
  }

 private:
  struct Choice {
    int32_t token;
    bool stop;
  };

  // The first tensor rank of the last stage draws; all ranks learn the token, and who wants to stop, in one
  // message.
  Choice choose(const RandomStream& random, uint64_t n) {
    int64_t message[2] = {0, stop_.signal.load() ? 1 : 0};
    if (mesh_.last_stage() && mesh_.coordinate("tp") == 0) {
      const double uniform = static_cast<double>(random.bits64(n) >> 11) * 0x1p-53;
      message[0] =
          draw(candidates({logits_.data(), static_cast<size_t>(drawable_)}, request_.sampling), uniform);
    }
    const Tensor both = Tensor::of(message, {2});
    mesh_.world().all_reduce(both, both, ReduceOp::sum).wait();
    return {static_cast<int32_t>(message[0]), message[1] != 0};
  }

  int64_t positions_;
  InferenceModel& model_;
  Mesh& mesh_;
  const GenerateRequest& request_;
  const StopFlag& stop_;
  const std::function<void(int, int32_t)>& emit_;
  std::vector<float> logits_, after_prompt_;
  int64_t drawable_;
};

}  // namespace

std::string_view name_of(TextEnd end) {
  switch (end) {
    case TextEnd::tokens:
      return "tokens";
    case TextEnd::end_of_text:
      return "end_of_text";
    case TextEnd::positions:
      return "max_position_embeddings";
    case TextEnd::interrupted:
      return "interrupted";
  }
  return "?";
}

void check_prompt(const RunConfig& config, const GenerateRequest& request) {
  const ModelConfig& m = config.model;
  const int64_t n = static_cast<int64_t>(request.prompt.size());
  if (n == 0)
    fail_usage("the prompt is empty; give at least one token of text with --prompt, or --prompt-ids");
  if (n >= m.max_position_embeddings)
    fail_usage(
        "the prompt has {} tokens; the model has max_position_embeddings: {} for prompt and text together, "
        "so "
        "that a prompt can have 1 to {}",
        n, m.max_position_embeddings, m.max_position_embeddings - 1);
  for (const int32_t id : request.prompt)
    if (id < 0 || id >= m.vocab_size)
      fail_usage(
          "the prompt has token {}; the model's vocab_size is {}, so that tokens can be 0 to {}: is this the "
          "tokenizer that it was trained with?",
          id, m.vocab_size, m.vocab_size - 1);
}

InferenceShape shape_of(const RunConfig& config, const GenerateRequest& request) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  InferenceShape shape;
  shape.sequence = std::min(prompt, prompt_piece);
  shape.positions = std::min(prompt + request.tokens, config.model.max_position_embeddings);
  return shape;
}

Generated generate(const RunConfig& config, const ModelSource& source, Communicator& world, int local_rank,
                   int local_size, const GenerateRequest& request, const StopFlag& stop,
                   const std::function<void(int sample, int32_t token)>& emit) {
  check_prompt(config, request);
  const auto start = Clock::now();
  const Backend backend =
      make_backend(config.training.device, compute_threads(config, local_size), local_rank);
  Mesh mesh(grid_of(config), world, inference_needs(config), backend.memory());
  const InferenceShape shape = shape_of(config, request);
  const InferencePlan plan = plan_inference(config, world.rank(), shape);
  InferenceModel model(config, mesh, *backend.device, *backend.kernels, shape, plan.scratch_bytes);
  load_weights(source, world, model.params(), {backend.device->threads().size(), {}});
  const double load_seconds = seconds_since(start);
  Generated result = continue_prompt(config, model, mesh, request, stop, emit);
  result.load_seconds = load_seconds;
  return result;
}

Generated continue_prompt(const RunConfig& config, InferenceModel& model, Mesh& mesh,
                          const GenerateRequest& request, const StopFlag& stop,
                          const std::function<void(int sample, int32_t token)>& emit) {
  Generated result;
  Generator generator(config, model, mesh, request, stop, emit);
  auto start = Clock::now();
  generator.prefill();
  result.prefill_seconds = seconds_since(start);
  start = Clock::now();
  for (int s = 0; s < request.samples; ++s) {
    result.samples.push_back(generator.sample(s));
    result.decoded += std::max<int64_t>(static_cast<int64_t>(result.samples.back().ids.size()) - 1, 0);
    if (result.samples.back().end == TextEnd::interrupted) break;
  }
  result.decode_seconds = seconds_since(start);
  model.finish();
  result.memory = model.memory();
  return result;
}

}  // namespace triax
