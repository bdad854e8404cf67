#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/error.h"
#include "data/glob.h"
#include "data/sentencepiece_tokenizer.h"
#include "data/token_file.h"
#include "data/tokenize.h"
#include "data/tokenizer.h"
#include "launch/cli.h"
#include "launch/signals.h"

namespace triax {

namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  TokenizeOptions tokenize;
  SentencePieceTraining train;
  std::string tokenizer, file;  // of show
  int64_t first = 0, count = 200;
  bool ids = false;
};

std::vector<std::string> expanded(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (!is_glob(input)) {
      files.push_back(input);
      continue;
    }
    const auto found = expand_glob(input);
    if (found.empty()) fail_usage("{}: no file is meant by this pattern", input);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
                   : fmt::format("{}:{:02}", s / 60, s % 60);
}

// A line that is drawn again and again on a terminal, one now and then elsewhere.
class ProgressLine {
 public:
  void show(const TokenizeProgress& p) {
    const auto now = Clock::now();
    const bool terminal = isatty(STDERR_FILENO) != 0;
    if (std::chrono::duration<double>(now - shown_).count() < (terminal ? 0.5 : 10)) return;
    shown_ = now;
    const double rate = static_cast<double>(p.bytes - p.first_bytes) / std::max(seconds(), 1e-9);
    std::fputs(fmt::format("{}tokenize: {:5.1f} %  {:.1f} MB/s  {} tokens  {} left{}", terminal ? "\r" : "",
                           100.0 * static_cast<double>(p.bytes) /
                               static_cast<double>(std::max<int64_t>(p.total_bytes, 1)),
                           rate / 1e6, p.written.tokens,
                           duration(static_cast<double>(p.total_bytes - p.bytes) / std::max(rate, 1.0)),
                           terminal ? "  " : "\n")
                   .c_str(),
               stderr);
    open_ = terminal;
  }
  void end() {
    if (open_) std::fputc('\n', stderr);
    open_ = false;
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
  bool open_ = false;
};

int run_tokenize(TokenizeOptions options) {
  if (options.inputs.empty()) fail_usage("tokenize: no input; run triax tokenize --help for an example");
  if (options.output.empty()) fail_usage("tokenize: --output is required: the prefix of the token file");
  if (std::filesystem::path(options.output).extension() == ".bin")
    fail_usage("tokenize: --output {}: .bin and .idx are added to it; write --output {}", options.output,
               std::filesystem::path(options.output).replace_extension().string());
  options.inputs = expanded(options.inputs);
  if (options.workers == 0)
    options.workers = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  StopFlag stop;
  SignalWatch watch(stop, "keeping what is done; the same command goes on");
  ProgressLine line;
  TokenizeProgress last;
  const bool done = tokenize(options, [&](const TokenizeProgress& p) {
    last = p;
    line.show(p);
    return stop.signal.load() == 0;
  });
  line.end();
  if (!done) {
    std::fputs(
        fmt::format("tokenize: stopped after {:.1f} % of the text; the same command goes on from there\n",
                    100.0 * static_cast<double>(last.bytes) / static_cast<double>(last.total_bytes))
            .c_str(),
        stderr);
    return stop.signal.load() == SIGINT ? exit_interrupted : exit_stopped;
  }
  std::puts(
      fmt::format("{}.bin: {} tokens, {} documents, from {} bytes; {:.1f} s, {:.1f} MB/s", options.output,
                  last.written.tokens, last.written.documents, last.total_bytes, line.seconds(),
                  static_cast<double>(last.bytes - last.first_bytes) / 1e6 / std::max(line.seconds(), 1e-9))
          .c_str());
  return exit_done;
}

int run_train(SentencePieceTraining training) {
  if (std::filesystem::path(training.output).extension() != ".model")
    fail_usage("tokenize train: --output {0}: a SentencePiece model ends in .model; write --output {0}.model",
               training.output);
  training.inputs = expanded(training.inputs);
  if (training.threads == 0)
    training.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  train_sentencepiece(training);
  const auto tokenizer = open_tokenizer(training.output);
  std::puts(fmt::format("{}: a SentencePiece model of {} tokens", training.output, tokenizer->vocab_size())
                .c_str());
  return exit_done;
}

int run_show(const Arguments& a) {
  const auto source = open_tokens(a.file);
  const int64_t first = std::min(a.first, source->tokens()),
                count = std::min(a.count, source->tokens() - first);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  source->read(first, tokens);
  std::puts(
      fmt::format("{}: {} tokens; {} from {} on:", source->name(), source->tokens(), count, first).c_str());
  if (a.ids) {
    for (const int32_t token : tokens) std::fputs(fmt::format("{} ", token).c_str(), stdout);
  } else {
    const std::string text = open_tokenizer(a.tokenizer)->decode(tokens);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  std::fputc('\n', stdout);
  return exit_done;
}

using Shared = std::shared_ptr<Arguments>;

CLI::App* add_training(CLI::App& group, const Shared& a, const Choose& choose) {
  CLI::App* command = group.add_subcommand("train", "make a tokenizer from text: a SentencePiece model");
  SentencePieceTraining& t = a->train;
  command->add_option("INPUT", t.inputs, "text files, a sentence a line; or patterns such as 'text/*.txt'")
      ->required();
  command->add_option("--output", t.output, "the model, a file FILE.model")->required();
  command->add_option("--vocab-size", t.vocab_size, "tokens")
      ->capture_default_str()
      ->check(CLI::Range(300, 1 << 24));
  command->add_option("--algorithm", t.algorithm, "bpe or unigram")
      ->capture_default_str()
      ->check(CLI::IsMember({"bpe", "unigram"}));
  command->add_option("--sentences", t.sentences, "lines that are looked at, drawn evenly from all")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  t.threads = 0;
  command->add_option("--workers", t.threads, "threads (default: all cores)")->check(CLI::Range(1, 1024));
  command->footer("Example:\n  triax tokenize train corpus.txt --vocab-size 8000 --output corpus.model");
  command->final_callback([a, choose] { choose([a] { return run_train(a->train); }); });
  return command;
}

CLI::App* add_show(CLI::App& group, const Shared& a, const Choose& choose) {
  CLI::App* command = group.add_subcommand("show", "a part of a token file, as text or as ids");
  command->add_option("FILE", a->file, "a token file, or the prefix of a pair")->required();
  command->add_option("--tokenizer", a->tokenizer, "what made it")->default_val("bytes");
  command->add_option("--first", a->first, "token to begin with")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--count", a->count, "tokens")->capture_default_str()->check(CLI::Range(1, 1 << 24));
  command->add_flag("--ids", a->ids, "ids instead of text");
  command->footer("Example:\n  triax tokenize show corpus --tokenizer corpus.model --count 50");
  command->final_callback([a, choose] { choose([a] { return run_show(*a); }); });
  return command;
}

}  // namespace

void add_tokenize(CLI::App& app, const Choose& choose) {
  const auto a = std::make_shared<Arguments>();
  TokenizeOptions& t = a->tokenize;
  t.workers = 0;
  CLI::App* group = app.add_subcommand("tokenize", "text to token files; train: text to a tokenizer");
  group->add_option(
      "INPUT", t.inputs,
      "text files (a document each) and .jsonl (a document a line), or patterns such as 'text/*.jsonl'");
  group
      ->add_option("--tokenizer", t.tokenizer,
                   "bytes, a SentencePiece FILE.model, or a tokenizer.json of Hugging Face or its folder")
      ->capture_default_str();
  group->add_option("--output", t.output,
                    "prefix of the token file: PREFIX.bin, and PREFIX.idx with megatron");
  group->add_option("--format", t.format, "megatron (.bin and .idx) or llmc (.bin)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, TokenFormat>{
          {"megatron", TokenFormat::megatron}, {"llmc", TokenFormat::llmc}}))
      ->default_str("megatron");
  group
      ->add_option("--workers", t.workers, "threads that encode (default: all cores); the result is the same")
      ->check(CLI::Range(1, 1024));
  group->add_option("--json-key", t.json_key, "of .jsonl: where an object has its text")
      ->capture_default_str();
  group->add_flag("--append-eot,!--no-append-eot", t.end_of_text,
                  "put the tokenizer's end of text behind each document (default)");
  group->add_flag("--overwrite", t.overwrite, "replace a token file that is there");
  group->footer(
      "Example:\n"
      "  triax tokenize corpus.txt --tokenizer bytes --output corpus\n"
      "  triax tokenize 'text/*.jsonl' --tokenizer llama3/tokenizer.json --output text --workers 16\n"
      "A run that was stopped or killed goes on when it is repeated. Exit status: 0 done, 1 fault, 2 bad "
      "usage,\n"
      "75 stopped by SIGTERM or SIGUSR1 and 130 by SIGINT: the same command continues.");
  const CLI::App* train = add_training(*group, a, choose);
  const CLI::App* show = add_show(*group, a, choose);
  group->final_callback([a, choose, train, show] {
    if (!train->parsed() && !show->parsed()) choose([a] { return run_tokenize(a->tokenize); });
  });
}

}  // namespace triax
