#include "engine/generate.h"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "engine/plan.h"
#include "engine/text_stream.h"
#include "launch/cli.h"
#include "launch/on_ranks.h"

namespace triax {

namespace {

struct GenerateOptions {
  std::string path, prompt, prompt_file, tokenizer;
  std::vector<int32_t> prompt_ids;
  std::vector<std::string> sets;
  int ranks = 0;
  GenerateRequest request;
  bool json = false, quiet = false, verbose = false, text_alone = false;
};

std::string read_prompt(const std::string& file) {
  std::FILE* in = file == "-" ? stdin : std::fopen(file.c_str(), "rb");
  if (!in) fail_usage("--prompt-file {}: {}", file, std::strerror(errno));
  std::string text;
  char part[4096];
  while (const size_t n = std::fread(part, 1, sizeof part, in)) text.append(part, n);
  const bool broken = std::ferror(in) != 0;
  if (in != stdin) std::fclose(in);
  if (broken) fail_usage("--prompt-file {}: {}", file, std::strerror(errno));
  return text;
}

/// What the ranks are asked, and the words for it.
struct GenerateSubject {
  ModelSource source;
  RunConfig config;
  GenerateRequest request;
  std::string prompt;                    ///< as it is shown
  std::unique_ptr<Tokenizer> tokenizer;  ///< null: tokens are shown as ids
};

/// What stands on the console: the prompt, then each token as soon as it is whole characters.
class Console {
 public:
  Console(const GenerateOptions& options, const GenerateSubject& subject)
      : options_(options), subject_(subject) {}

  void token(int sample, int32_t id) {
    if (options_.json) return;
    if (sample != sample_) begin(sample);
    put(text_ ? text_->push(id) : fmt::format(",{}", id));
  }
  void end() {
    if (options_.json) return;
    if (sample_ < 0) begin(0);
    put((text_ ? text_->finish() : "") + "\n");
  }

 private:
  void begin(int sample) {
    if (sample_ >= 0) end();
    sample_ = sample;
    if (subject_.tokenizer) text_.emplace(*subject_.tokenizer, subject_.request.prompt);
    if (subject_.request.samples > 1)
      put(fmt::format("--- sample {} of {}\n", sample + 1, subject_.request.samples));
    if (!options_.text_alone) put(subject_.prompt);
  }
  static void put(const std::string& text) {
    const bool written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    check(written, "the text can't be written to standard output: {}", std::strerror(errno));
  }

  const GenerateOptions& options_;
  const GenerateSubject& subject_;
  std::optional<TextStream> text_;
  int sample_ = -1;
};

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

void print_statistics(const GenerateSubject& subject, const Generated& done) {
  const int64_t prompt = static_cast<int64_t>(subject.request.prompt.size());
  std::string ends;
  for (const Continuation& sample : done.samples) {
    if (sample.end == TextEnd::positions)
      ends =
          fmt::format("; ended at max_position_embeddings: {}", subject.config.model.max_position_embeddings);
    if (sample.end == TextEnd::end_of_text && ends.empty()) ends = "; ended with the end-of-text token";
  }
  fmt::print(
      stderr,
      "prompt {} tokens in {:.3f} s ({:.1f}/s), then {} in {:.3f} s ({:.1f}/s), loaded in {:.2f} s{}\n",
      prompt, done.prefill_seconds, rate(prompt, done.prefill_seconds), done.decoded, done.decode_seconds,
      rate(done.decoded, done.decode_seconds), done.load_seconds, ends);
}

std::string text_of(const GenerateSubject& subject, const std::vector<int32_t>& ids) {
  TextStream stream(*subject.tokenizer, subject.request.prompt);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

void print_json(const GenerateSubject& subject, const Generated& done) {
  nlohmann::ordered_json out;
  out["model"] = subject.source.folder;
  if (subject.source.checkpoint) out["step"] = subject.source.checkpoint->step;
  Utf8Stream prompt;
  if (subject.tokenizer) out["prompt"] = prompt.push(subject.prompt) + prompt.finish();
  out["prompt_ids"] = subject.request.prompt;
  out["samples"] = nlohmann::ordered_json::array();
  for (const Continuation& sample : done.samples) {
    nlohmann::ordered_json one{{"ids", sample.ids}, {"ended_by", name_of(sample.end)}};
    if (subject.tokenizer) one["text"] = text_of(subject, sample.ids);
    out["samples"].push_back(std::move(one));
  }
  out["prefill_seconds"] = done.prefill_seconds;
  out["decode_seconds"] = done.decode_seconds;
  out["decoded_tokens"] = done.decoded;
  for (const MemoryLine& line : done.memory) out["memory_bytes"][line.name] = line.bytes;
  fmt::print("{}\n", out.dump(2));
}

// The prompt as tokens, with what the tokenizer says about drawing.
void encode_prompt(const GenerateOptions& options, GenerateSubject& subject) {
  GenerateRequest& request = subject.request;
  const int64_t vocabulary = subject.config.model.vocab_size;
  if (!options.prompt_ids.empty()) {
    request.prompt = options.prompt_ids;
    subject.prompt = fmt::format("{}", fmt::join(options.prompt_ids, ","));
    return;
  }
  subject.tokenizer = tokenizer_for(subject.source, subject.config, options.tokenizer);
  const Tokenizer& tokenizer = *subject.tokenizer;
  if (vocabulary < tokenizer.vocab_size())
    fail_usage(
        "{}: the model's vocab_size: {} is less than the {} tokens of the tokenizer {}; name the one that it "
        "was trained with (--tokenizer), or give tokens (--prompt-ids)",
        subject.source.folder, vocabulary, tokenizer.vocab_size(),
        options.tokenizer.empty() ? subject.config.data.tokenizer : options.tokenizer);
  if (tokenizer.end_of_text() && *tokenizer.end_of_text() < vocabulary) request.end = tokenizer.end_of_text();
  // Ids beyond the tokenizer's have no text.
  request.vocabulary = tokenizer.vocab_size();
  if (request.end) request.vocabulary = std::max<int64_t>(request.vocabulary, *request.end + 1);
  subject.prompt = options.prompt_file.empty() ? options.prompt : read_prompt(options.prompt_file);
  request.prompt = tokenizer.encode(subject.prompt);
  if (request.prompt.empty() && request.end) request.prompt = {*request.end};  // as where a document ends
}

GenerateSubject generate_subject(const GenerateOptions& options, int launched) {
  GenerateSubject subject;
  subject.source = open_model(options.path);
  subject.config =
      inference_config(subject.source, options.sets, {launched, options.ranks, /*to_tensor=*/true});
  subject.request = options.request;
  encode_prompt(options, subject);
  check_prompt(subject.config, subject.request);
  return subject;
}

int run_generate(const GenerateOptions& options) {
  GenerateSubject subject;
  const auto load = [&](int launched) {
    subject = generate_subject(options, launched);
    return subject.config;
  };
  return run_on_ranks("ending with this token", load, [&](Communicator& world, const RankStart& start) {
    const bool leads = world.rank() == 0;
    const RunConfig& config = subject.config;
    Console console(options, subject);
    if (leads && options.verbose)
      fmt::print(stderr, "{}\n{}memory of rank 0, bytes:\n{}", subject.source.text(),
                 group_table(grid_of(config)),
                 memory_table(plan_inference(config, 0, shape_of(config, subject.request)).memory));
    const Generated done = generate(config, subject.source, world, start.local_rank, start.local_size, subject.request,
                                    start.stop, [&](int sample, int32_t id) { console.token(sample, id); });
    if (leads) {
      console.end();
      if (options.json) print_json(subject, done);
      if (!options.quiet && !options.json) print_statistics(subject, done);
    }
    return done.samples.back().end == TextEnd::interrupted ? exit_interrupted : exit_done;
  });
}

void add_sampling(CLI::App& command, GenerateRequest& request) {
  command.add_option("--tokens,--max-tokens", request.tokens, "tokens to draw, at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 30));
  command.add_option("--temperature", request.sampling.temperature, "0 always takes the likeliest token")
      ->capture_default_str()
      ->check(number_between(0, 100));
  command.add_option("--top-k", request.sampling.top_k, "draw from the k likeliest tokens; 0: from all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
  command
      .add_option("--top-p", request.sampling.top_p,
                  "draw from the fewest likeliest tokens that together have this probability")
      ->capture_default_str()
      ->check(number_between(0, 1));
  command.add_option("--seed", request.seed, "another seed gives another text")->capture_default_str();
  command.add_option("--samples", request.samples, "continuations of the prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
}

}  // namespace

void add_generate(CLI::App& app, const Choose& choose) {
  CLI::App* command = app.add_subcommand("generate", "continue a text with a trained model");
  const auto options = std::make_shared<GenerateOptions>();
  command
      ->add_option("CHECKPOINT", options->path,
                   "a run's folder (its newest checkpoint), one checkpoint, or a folder of Hugging Face")
      ->required();
  CLI::Option_group* prompt = command->add_option_group("prompt");
  prompt->add_option("--prompt", options->prompt, "text to continue");
  prompt->add_option("--prompt-file", options->prompt_file,
                     "file with the text to continue; - is standard input");
  prompt
      ->add_option("--prompt-ids", options->prompt_ids, "tokens to continue, 1,2,3; tokens are printed, too")
      ->delimiter(',');
  prompt->require_option(1);
  command->add_option("--tokenizer", options->tokenizer, "over the job's data.tokenizer");
  add_sampling(*command, options->request);
  command
      ->add_option("--ranks", options->ranks,
                   "ranks to compute on, as tensor ranks unless --set says otherwise")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--set", options->sets,
                   "key=value: parallel.tensor, parallel.pipeline, training.precision, ...")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--text-alone", options->text_alone, "do not print the prompt before the text");
  command->add_flag("--json", options->json, "one object when all is done, with the token ids");
  command->add_flag("-q,--quiet", options->quiet, "no statistics on standard error");
  command->add_flag("-v,--verbose", options->verbose,
                    "also the grid and the memory, key-value cache included");
  command->footer(
      "Example:\n"
      "  triax generate runs/demo --prompt \"In the beginning\" --tokens 100 --temperature 0.8\n"
      "  triax generate runs/demo --prompt \"In the beginning\" --temperature 0 --ranks 2");
  command->final_callback([choose, options] { choose([options] { return run_generate(*options); }); });
}

}  // namespace triax
