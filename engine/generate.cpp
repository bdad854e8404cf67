#include "engine/generate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "checkpoint/reader.h"
#include "core/rng.h"
#include "engine/job.h"
#include "engine/plan.h"
#include "engine/state.h"

namespace triax {

namespace fs = std::filesystem;

std::string locate_checkpoint(const std::string& path) {
  if (fs::exists(fs::path(path) / manifest_file)) return path;
  std::string looked;
  for (const fs::path& dir : {fs::path(path) / "checkpoints", fs::path(path)}) {
    if (!fs::is_directory(dir)) continue;
    if (const FoundCheckpoint found = find_checkpoint(dir); found.info) return found.info->folder.string();
    looked += "\n  " + dir.string();
  }
  fail_usage(
      "no complete checkpoint at {}; give a run's folder, its checkpoints folder or one checkpoint{}{}", path,
      looked.empty() ? "" : "; looked in", looked);
}

namespace {

// The model of a checkpoint as a job of one rank whose batch is one window of tokens.
RunConfig job_of_one(const CheckpointInfo& info) {
  RunConfig config = config_from_yaml(info.config, (info.folder / manifest_file).string());
  config.parallel = {};
  config.checkpoint.async = false;  // nothing will be saved
  config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 1;
  config.training.global_batch_size = config.training.micro_batch_size = 1;
  config.training.sequence_length = config.model.max_position_embeddings;
  if (config.model.vocab_size < 256)
    fail_usage("{}: vocab_size {} is less than 256, so its tokens are not bytes", info.folder.string(),
               config.model.vocab_size);
  return config;
}

int32_t draw(const float* logits, int64_t vocabulary, const GenerateOptions& options,
             const RandomStream& random, uint64_t n) {
  std::vector<int32_t> order(static_cast<size_t>(vocabulary));
  std::iota(order.begin(), order.end(), 0);
  auto likelier = [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  if (options.temperature <= 0) return *std::min_element(order.begin(), order.end(), likelier);
  const int64_t k = options.top_k > 0 ? std::min(options.top_k, vocabulary) : vocabulary;
  std::partial_sort(order.begin(), order.begin() + k, order.end(), likelier);
  std::vector<double> weight(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i)
    weight[static_cast<size_t>(i)] =
        std::exp((logits[order[static_cast<size_t>(i)]] - logits[order[0]]) / options.temperature);
  double rest = std::accumulate(weight.begin(), weight.end(), 0.0) *
                (static_cast<double>(random.bits64(n) >> 11) * 0x1p-53);
  for (size_t i = 0; i < weight.size(); ++i)
    if ((rest -= weight[i]) < 0) return order[i];
  return order[static_cast<size_t>(k - 1)];
}

}  // namespace

void generate(const GenerateOptions& options, const std::function<void(unsigned char)>& emit) {
  if (options.prompt.empty()) fail_usage("the prompt is empty; give at least one character with --prompt");
  const CheckpointInfo info = read_manifest(locate_checkpoint(options.path));
  const RunConfig config = job_of_one(info);
  const auto world = make_self_communicator({});
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const auto device = make_cpu_device(options.threads ? options.threads : cores);
  Mesh mesh(grid_of(config), *world, mesh_needs(config));
  Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, 0).scratch_bytes);
  load_checkpoint(*world, info, pieces_to_load(trainer, /*weights_only=*/true));
  trainer.state_loaded();

  const int64_t window = config.training.sequence_length, vocabulary = config.model.vocab_size;
  std::vector<int32_t> text;
  for (unsigned char c : options.prompt) text.push_back(c);
  std::vector<int32_t> ids(static_cast<size_t>(window));
  std::vector<float> logits(static_cast<size_t>(window * vocabulary));
  const RandomStream random(options.seed, "generate");
  for (int64_t n = 0; n < options.tokens; ++n) {
    const int64_t used = std::min<int64_t>(window, static_cast<int64_t>(text.size()));
    std::fill(ids.begin(), ids.end(), 0);  // what stands behind the text is masked by causality
    std::copy(text.end() - used, text.end(), ids.begin());
    trainer.stage().logits(Tensor::of(ids.data(), {window}), Tensor::of(logits.data(), {window, vocabulary}));
    // Tokens beyond the bytes have no character.
    const int32_t token = draw(logits.data() + (used - 1) * vocabulary, std::min<int64_t>(vocabulary, 256),
                               options, random, static_cast<uint64_t>(n));
    text.push_back(token);
    emit(static_cast<unsigned char>(token));
  }
}

}  // namespace triax
