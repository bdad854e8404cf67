#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "core/error.h"
#include "data/packed_tokens.h"
#include "data/tokenizer.h"
#include "engine/legal.h"
#include "engine/origin.h"

namespace triax {

namespace fs = std::filesystem;

namespace {

// Why a file cannot be read; empty when it can.
std::string why_unreadable(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return "no such file";
  if (error) return error.message();
  if (!fs::is_regular_file(status)) return "not a regular file";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::strerror(errno);
  close(file);
  return "";
}

void check_source(const RunConfig& config, const std::string& key, const std::string& path,
                  FieldReport& report) {
  if (report.bad.count(key)) return;
  const std::string why = is_megatron_path(path) ? "" : why_unreadable(path);
  if (!why.empty()) {
    report.problems.push_back(fmt::format("{}: {}: {}", key, path, why));
    return;
  }
  std::unique_ptr<TokenSource> source;
  try {
    source = open_tokens(path, {config.data.tokenizer, config.data.json_key});
  } catch (const Error& error) {
    report.problems.push_back(fmt::format("{}: {}", key, error.what()));
    return;
  }
  const int64_t s = config.training.sequence_length, tokens = source->tokens();
  if (!report.bad.count("training.sequence_length") && tokens < s + 1)
    report.problems.push_back(fmt::format(
        "{}: {} has {} tokens, a sample takes training.sequence_length + 1 = {}; {}", key, path, tokens,
        s + 1,
        tokens > 1 ? fmt::format("sequence_length can be 1 to {}", tokens - 1) : "name a longer file"));
  if (!report.bad.count("model.vocab_size") && config.model.vocab_size < source->vocabulary())
    report.problems.push_back(
        fmt::format("{}: {} is read as bytes{}, which needs model.vocab_size of at least {}; it is {}", key,
                    path, source->vocabulary() > 256 ? " with token 256 after each document" : "",
                    source->vocabulary(), config.model.vocab_size));
}

// Opens it, so that a damaged one is found here.
void check_tokenizer(const RunConfig& config, FieldReport& report) {
  if (report.bad.count("data.tokenizer") || is_bytes(config.data.tokenizer)) return;
  try {
    const int64_t needed = open_tokenizer(config.data.tokenizer)->vocab_size();
    if (!report.bad.count("model.vocab_size") && config.model.vocab_size < needed)
      report.problems.push_back(fmt::format(
          "data.tokenizer: {} has {} tokens, model.vocab_size is {}; it can be {} or more (a multiple "
          "of 128 is quick)",
          config.data.tokenizer, needed, config.model.vocab_size, needed));
  } catch (const Error& error) {
    report.problems.push_back(fmt::format("data.tokenizer: {}", error.what()));
  }
}

// Of a job whose checkpoint.resume is a path: what is wrong with it; empty when nothing is.
std::string wrong_resume(const CheckpointConfig& c) {
  std::error_code none;
  if (!fs::is_directory(c.resume, none)) {
    // A run that began there and has saved since does not need it any more (engine/restore.h).
    const FoundCheckpoint own = fs::is_directory(c.dir, none) ? find_checkpoint(c.dir) : FoundCheckpoint{};
    if (own.info && began_with(*own.info, c.resume)) return "";
    return fmt::format(
        "checkpoint.resume: {}: no such folder; resume can be auto, never or the path of a checkpoint",
        c.resume);
  }
  if (!fs::exists(fs::path(c.resume) / manifest_file, none)) {
    std::string there;
    for (const fs::path& dir : {fs::path(c.resume), fs::path(c.resume) / "checkpoints"})
      if (fs::is_directory(dir, none))
        for (const StepFolder& folder : step_folders(dir))
          there += (there.empty() ? "" : ", ") + folder.path.string();
    if (!there.empty())
      return fmt::format("checkpoint.resume: {} is no checkpoint; there are: {}", c.resume, there);
  }
  if (c.load == "weights" && lies_in(c.resume, c.dir))
    return fmt::format(
        "checkpoint.load: weights: {} is a checkpoint of this very run, which would begin anew over it; give "
        "this run an output_dir of its own",
        c.resume);
  return "";
}

}  // namespace

void check_files(const RunConfig& config, FieldReport& report) {
  check_tokenizer(config, report);
  if (config.data.train.empty() && !report.bad.count("data.train"))
    report.problems.push_back("data.train: the list is empty; name at least one source: [{path: FILE}]");
  for (size_t i = 0; i < config.data.train.size(); ++i)
    check_source(config, fmt::format("data.train[{}].path", i), config.data.train[i].path, report);
  for (size_t i = 0; i < config.data.validation.size(); ++i)
    check_source(config, fmt::format("data.validation[{}].path", i), config.data.validation[i].path, report);

  const std::string& resume = config.checkpoint.resume;
  std::error_code error;
  if (resume != "auto" && resume != "never")
    if (std::string wrong = wrong_resume(config.checkpoint); !wrong.empty())
      report.problems.push_back(std::move(wrong));
  for (const auto& [key, path] :
       {std::pair{"output_dir", config.output_dir}, std::pair{"checkpoint.dir", config.checkpoint.dir}})
    if (fs::exists(path, error) && !fs::is_directory(path, error))
      report.problems.push_back(fmt::format("{}: {} exists and is not a folder", key, path));
}

}  // namespace triax
