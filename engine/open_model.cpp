#include "engine/open_model.h"

#include <algorithm>
#include <filesystem>

#include "core/bf16.h"
#include "core/error.h"
#include "core/fields.h"
#include "engine/job_data.h"
#include "engine/legal.h"
#include "engine/pretrained.h"

namespace triax {

namespace fs = std::filesystem;

namespace {

CheckpointInfo newest_checkpoint(const std::string& path) {
  if (fs::exists(fs::path(path) / manifest_file)) return read_manifest(fs::path(path));
  std::string looked;
  for (const fs::path& dir : {fs::path(path) / "checkpoints", fs::path(path)}) {
    if (!fs::is_directory(dir)) continue;
    if (FoundCheckpoint found = find_checkpoint(dir); found.info) return std::move(*found.info);
    looked += "\n  " + dir.string();
  }
  fail_usage(
      "no complete checkpoint at {}; give a run's folder, its checkpoints folder, one checkpoint or a folder "
      "of "
      "Hugging Face{}{}",
      path, looked.empty() ? "" : "; looked in", looked);
}

ModelSource pretrained_source(const std::string& path) {
  ModelSource source;
  source.folder = path;
  source.config.model = PretrainedFolder(path).model();
  source.config.training.sequence_length = usual_window(source.config.model);
  source.config.training.micro_batch_size = 1;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (fs::exists(fs::path(path) / name)) {
      source.config.data.tokenizer = path;
      break;
    }
  return source;
}

constexpr const char* settable[] = {
    "parallel.tensor",           "parallel.pipeline", "parallel.data",
    "training.precision",        "training.threads",  "training.sequence_length",
    "training.micro_batch_size", "training.device"};

// What training alone asks about goes back to its defaults, so that no rule of theirs is in the way.
RunConfig without_training(const RunConfig& job) {
  RunConfig config;
  config.name = job.name;
  config.output_dir = job.output_dir;
  config.seed = job.seed;
  config.model = job.model;
  config.data = job.data;
  config.training.precision = job.training.precision;
  config.training.sequence_length = job.training.sequence_length;
  config.training.micro_batch_size = std::max<int64_t>(job.training.micro_batch_size, 1);
  config.training.global_batch_size = config.training.micro_batch_size;
  config.training.steps = 1;
  config.checkpoint.dir = job.checkpoint.dir;
  config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 1;
  return config;
}

std::string key_of(const std::string& set) {
  return set.substr(0, set.find('='));
}

bool may_be_set(const std::string& key) {
  return std::any_of(std::begin(settable), std::end(settable), [&](const char* k) { return key == k; }) ||
         key.rfind("data.", 0) == 0;
}

// Ranks that no key gives a place.
void resolve_grid(ParallelConfig& p, const std::vector<std::string>& sets, int asked, bool to_tensor) {
  const auto given = [&](const char* key) {
    return std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return key_of(set) == key; });
  };
  int& open = to_tensor ? p.tensor : p.data;
  const bool fixed = given(to_tensor ? "parallel.tensor" : "parallel.data") && open > 0;
  for (int* degree : {&p.tensor, &p.pipeline, &p.data})
    if (*degree == 0) *degree = 1;  // auto
  const int others = p.tensor * p.pipeline * p.data / open;
  if (!fixed && asked && asked % others == 0) open = asked / others;
}

// 256 bytes, the end of a text, and what may round them up.
bool is_byte_vocabulary(int64_t tokens) {
  return tokens >= 256 && tokens <= 512;
}

}  // namespace

int64_t usual_window(const ModelConfig& model) {
  constexpr int64_t longest = 1024;
  return std::min(model.max_position_embeddings, longest);
}

std::unique_ptr<Tokenizer> tokenizer_for(const ModelSource& source, const RunConfig& config,
                                         const std::string& wanted) {
  if (!wanted.empty()) return open_tokenizer(wanted);
  constexpr auto remedy =
      "so no text can be given to it; name its tokenizer (--tokenizer FILE, or bytes for a model of bytes), "
      "or give tokens";
  if (is_bytes(config.data.tokenizer) && !source.checkpoint)
    fail_usage("{} has no tokenizer.json or tokenizer.model, {}", source.folder, remedy);
  if (is_bytes(config.data.tokenizer) && !trained_on_text(source.config) &&
      !is_byte_vocabulary(config.model.vocab_size))
    fail_usage("{} does not say whose tokens its {} are (data.tokenizer), {}", source.folder,
               config.model.vocab_size, remedy);
  try {
    return open_tokenizer(config.data.tokenizer);
  } catch (const Error& error) {
    fail_usage("{}: its tokenizer can't be read ({}), {}", source.folder, error.what(), remedy);
  }
}

std::string ModelSource::text() const {
  if (!checkpoint) return folder + ", Hugging Face";
  return fmt::format("{}, step {}", folder, checkpoint->step);
}

ModelSource open_model(const std::string& path) {
  ModelSource source;
  if (fs::exists(fs::path(path) / "config.json")) return pretrained_source(path);
  source.checkpoint = newest_checkpoint(path);
  source.folder = source.checkpoint->folder.string();
  source.config =
      config_from_yaml(source.checkpoint->config, (source.checkpoint->folder / manifest_file).string());
  return source;
}

RunConfig inference_config(const ModelSource& source, const std::vector<std::string>& sets,
                           const InferenceRanks& ranks) {
  FieldReport report;
  ConfigNode root = write_fields(without_training(source.config));
  for (const std::string& set : sets) {
    if (may_be_set(key_of(set)))
      set_value(root, set, report.problems);
    else
      report.problems.push_back(
          fmt::format("--set {}: makes no difference to a model that is not trained; it can be {}", set,
                      "parallel.tensor, parallel.pipeline, parallel.data, training.precision, "
                      "training.threads, training.device, training.sequence_length, "
                      "training.micro_batch_size or a key of "
                      "data"));
  }
  RunConfig config;
  read_fields(root, config, report);
  const int asked = ranks.launched ? ranks.launched : ranks.requested;
  if (ranks.launched && ranks.requested && ranks.launched != ranks.requested)
    report.problems.push_back(
        fmt::format("--ranks {} disagrees with the {} processes of the launcher; leave --ranks out",
                    ranks.requested, ranks.launched));
  resolve_grid(config.parallel, sets, asked, ranks.to_tensor);
  if (ranks.to_tensor && config.parallel.data != 1)
    report.problems.push_back(
        fmt::format("parallel.data: {}: one text is one sequence, so that more data ranks have nothing to "
                    "do; data can be 1",
                    config.parallel.data));
  config.training.global_batch_size = config.training.micro_batch_size * config.parallel.data;
  FieldReport rules;  // about keys of their own: what was given is not the job's file
  rules.bad = report.bad;
  check_legal(config, asked, ranks.launched ? "the launcher" : "--ranks", rules);
  report.problems.insert(report.problems.end(), rules.problems.begin(), rules.problems.end());
  refuse(report.problems);
  return config;
}

void load_weights(const ModelSource& source, Communicator& world, ParamStore& params,
                  const LoadOptions& options) {
  if (!source.checkpoint) return load_pretrained(world, source.folder, source.config.model, params);
  const bool direct = params.dtype() == DType::f32 && params.device().kind() == DeviceKind::cpu;
  std::vector<float> exact(direct ? 0 : static_cast<size_t>(params.elements()));
  float* base = direct ? params.weights().f32() : exact.data();
  std::vector<StatePiece> pieces;
  for (const auto& entry : params.entries())
    if (entry.primary < 0 && !empty(entry.box))
      pieces.push_back(
          {StateKind::weight, entry.spec.name, entry.spec.global, entry.box, base + entry.offset});
  load_checkpoint(world, *source.checkpoint, pieces, options);
  if (!direct) params.set_weights(0, params.elements(), exact.data());
}

}  // namespace triax
