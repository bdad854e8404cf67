#include "engine/evaluate.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "engine/plan.h"
#include "launch/cli.h"
#include "launch/on_ranks.h"

namespace triax {

namespace {

struct EvaluateOptions {
  std::string path, tokenizer;
  std::vector<std::string> files, sets;
  int ranks = 0;
  int64_t stride = 0, windows = 0;
  bool json = false, quiet = false, verbose = false;
};

/// What is to be evaluated, and why bytes are not counted where they are not.
struct EvaluateSubject {
  ModelSource source;
  RunConfig config;
  EvaluateRequest request;
  std::string no_bytes;
};

std::shared_ptr<const Tokenizer> tokenizer_of(const EvaluateOptions& options, EvaluateSubject& subject) {
  try {
    return tokenizer_for(subject.source, subject.config, options.tokenizer);
  } catch (const Error& error) {
    if (!options.tokenizer.empty()) throw;
    subject.no_bytes = error.what();  // token files do without
    return nullptr;
  }
}

std::shared_ptr<const TokenSource> open_file(const std::string& path, const EvaluateSubject& subject,
                                             const std::string& tokenizer) {
  const auto extension = std::filesystem::path(path).extension();
  const bool text = extension == ".txt";
  if ((text || extension == ".jsonl") && !subject.request.tokenizer)
    fail_usage("{} is text: {}", path, subject.no_bytes);
  std::shared_ptr<const TokenSource> file;
  if (!text || is_bytes(tokenizer)) {
    file = open_tokens(path, {tokenizer, subject.config.data.json_key});  // JSON lines as bytes only
  } else {
    file = tokenised_text(path, *subject.request.tokenizer);
  }
  if (file->tokens() < 2)
    fail_usage("{} has {} tokens; a loss needs at least 2, one to predict from the other", path,
               file->tokens());
  return file;
}

EvaluateSubject evaluate_subject(const EvaluateOptions& options, int launched) {
  EvaluateSubject subject;
  subject.source = open_model(options.path);
  subject.config =
      inference_config(subject.source, options.sets, {launched, options.ranks, /*to_tensor=*/false});
  RunConfig& config = subject.config;
  EvaluateRequest& request = subject.request;
  request.tokenizer = tokenizer_of(options, subject);
  request.windows.sequence = config.training.sequence_length;
  request.windows.stride = options.stride ? options.stride : request.windows.sequence;
  request.windows.most = options.windows;
  if (request.windows.stride > request.windows.sequence)
    fail_usage(
        "--stride {}: tokens between two windows would not be predicted; it can be 1 to {} "
        "(training.sequence_length)",
        request.windows.stride, request.windows.sequence);
  std::vector<std::string> files = options.files;
  if (files.empty())
    for (const DataSource& file : config.data.validation) files.push_back(file.path);
  if (files.empty())
    fail_usage("{}: the job has no data.validation; name the files to evaluate it on", subject.source.folder);
  const std::string tokenizer = options.tokenizer.empty() ? config.data.tokenizer : options.tokenizer;
  for (const std::string& path : files) request.files.push_back(open_file(path, subject, tokenizer));
  return subject;
}

std::string line_of(const FileLoss& file) {
  const auto bits = file.bits_per_byte();
  return fmt::format("{:<32} {:>14} {:>12.6f} {:>14.4f} {:>11}\n", file.name, file.targets, file.loss(),
                     file.perplexity(), bits ? fmt::format("{:.6f}", *bits) : "-");
}

void print_text(const EvaluateSubject& subject, const Evaluation& done) {
  const Windows& w = subject.request.windows;
  std::string text = fmt::format("{}; windows of {} tokens{}\n", subject.source.text(), w.sequence,
                                 w.stride < w.sequence ? fmt::format(", one every {}", w.stride) : "");
  text += fmt::format("{:<32} {:>14} {:>12} {:>14} {:>11}\n", "file", "tokens", "loss", "perplexity",
                      "bits/byte");
  for (const FileLoss& file : done.files) text += line_of(file);
  if (done.files.size() > 1) text += line_of(done.total);
  fmt::print("{}", text);
}

nlohmann::ordered_json json_of(const FileLoss& file) {
  nlohmann::ordered_json out{{"file", file.name},
                             {"tokens", file.targets},
                             {"loss", file.loss()},
                             {"perplexity", file.perplexity()}};
  if (const auto bits = file.bits_per_byte()) {
    out["bytes"] = *file.bytes;
    out["bits_per_byte"] = *bits;
  }
  return out;
}

void print_json(const EvaluateSubject& subject, const Evaluation& done) {
  nlohmann::ordered_json out;
  out["model"] = subject.source.folder;
  if (subject.source.checkpoint) out["step"] = subject.source.checkpoint->step;
  out["sequence_length"] = subject.request.windows.sequence;
  out["stride"] = subject.request.windows.stride;
  for (const FileLoss& file : done.files) out["files"].push_back(json_of(file));
  out["total"] = json_of(done.total);
  out["total"].erase("file");
  out["seconds"] = done.seconds;
  for (const MemoryLine& line : done.memory) out["memory_bytes"][line.name] = line.bytes;
  fmt::print("{}\n", out.dump(2));
}

/// A line about what is done, once a second, on a terminal alone.
class Progress {
 public:
  explicit Progress(bool on) : on_(on && isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void operator()(int64_t done, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!on_ || now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    shown_ = true;
    fmt::print(stderr, "\r{} of {} windows", done, total);
    std::fflush(stderr);
  }

 private:
  bool on_, shown_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

int run_evaluate(const EvaluateOptions& options) {
  EvaluateSubject subject;
  const auto load = [&](int launched) {
    subject = evaluate_subject(options, launched);
    return subject.config;
  };
  return run_on_ranks("ending after these windows", load, [&](Communicator& world, const RankStart& start) {
    const bool leads = world.rank() == 0;
    const EvaluateRequest& request = subject.request;
    if (leads && options.verbose)
      fmt::print(
          stderr, "{}memory of rank 0, bytes:\n{}", group_table(grid_of(subject.config)),
          memory_table(plan_inference(subject.config, 0,
                                      {subject.config.training.micro_batch_size, request.windows.sequence, 0})
                           .memory));
    if (leads && !options.quiet && !subject.no_bytes.empty())
      fmt::print(stderr, "no bits per byte: {}\n", subject.no_bytes);
    Evaluation done;
    {
      Progress progress(leads && !options.quiet);
      done = evaluate(subject.config, subject.source, world, start.local_rank, start.local_size, request, start.stop,
                      [&](int64_t windows, int64_t of) { progress(windows, of); });
    }
    if (done.interrupted) return exit_interrupted;
    if (leads) options.json ? print_json(subject, done) : print_text(subject, done);
    return exit_done;
  });
}

}  // namespace

void add_evaluate(CLI::App& app, const Choose& choose) {
  CLI::App* command = app.add_subcommand("evaluate", "loss and perplexity of a trained model on files");
  const auto options = std::make_shared<EvaluateOptions>();
  command
      ->add_option("CHECKPOINT", options->path,
                   "a run's folder (its newest checkpoint), one checkpoint, or a folder of Hugging Face")
      ->required();
  command->add_option("FILE", options->files,
                      "text or tokens, as in data.train (default: the job's data.validation)");
  command
      ->add_option("--stride", options->stride,
                   "tokens from one window to the next (default: a window); fewer give each more context")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_option("--windows", options->windows, "windows of each file that count (default: all)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--tokenizer", options->tokenizer, "over the job's data.tokenizer");
  command
      ->add_option("--ranks", options->ranks,
                   "ranks to compute on, as data ranks unless --set says otherwise")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--set", options->sets,
                   "key=value: parallel.tensor, training.sequence_length, training.micro_batch_size, ...")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--json", options->json, "machine-readable");
  command->add_flag("-q,--quiet", options->quiet, "no progress");
  command->add_flag("-v,--verbose", options->verbose, "also the grid and the memory");
  command->footer(
      "Example:\n"
      "  triax evaluate runs/demo corpus-val.txt other.txt --ranks 2\n"
      "  triax evaluate runs/demo --set training.sequence_length=64 --stride 32");
  command->final_callback([choose, options] { choose([options] { return run_evaluate(*options); }); });
}

}  // namespace triax
