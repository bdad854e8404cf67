#include "engine/hf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/file_io.h"
#include "core/error.h"
#include "data/tokenizer.h"
#include "data/word_pattern.h"
#include "engine/job_data.h"

namespace triax {

namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* end_word = "<|endoftext|>";

std::string utf8(uint32_t code) {  // below U+0800
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// The printable stand-in of each byte in byte-level BPE (GPT-2's bytes_to_unicode): itself where it is
// printable in Latin-1, else one of the characters from U+0100 on.
ordered_json byte_vocabulary() {
  ordered_json vocabulary = ordered_json::object();
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    vocabulary[utf8(printable ? byte : next++)] = byte;
  }
  return vocabulary;
}

// Tokens are bytes; with room for it in the vocabulary, 256 ends a text.
std::string byte_tokenizer(bool end) {
  const ordered_json level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  ordered_json added = ordered_json::array();
  if (end)
    added.push_back({{"id", 256},
                     {"content", end_word},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const ordered_json file{{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", level},
                          {"post_processor", nullptr},
                          {"decoder", level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false},
                            {"vocab", byte_vocabulary()},
                            {"merges", ordered_json::array()}}}};
  return file.dump(1) + "\n";
}

// Files beside a tokenizer.json or a SentencePiece model that transformers reads too.
constexpr const char* companions[] = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "chat_template.jinja"};

void copy_files(const Tokenizer& tokenizer, HfTokenizer& out) {
  for (const std::string& path : tokenizer.files()) {
    const fs::path file(path);
    // Only these names are looked for, whatever the tokenizer was called; the first file is the tokenizer.
    const bool first = path == tokenizer.files().front();
    const std::string name = file.extension() == ".model" ? "tokenizer.model"
                             : first                      ? "tokenizer.json"
                                                          : file.filename().string();
    out.files[name] = read_file(file);
    std::error_code none;
    for (const char* companion : companions)
      if (!out.files.count(companion) && fs::is_regular_file(file.parent_path() / companion, none))
        out.files[companion] = read_file(file.parent_path() / companion);
  }
}

// Without a tokenizer_config.json transformers would not know which class to make.
void describe(const RunConfig& job, const Tokenizer& tokenizer, bool bytes, HfTokenizer& out) {
  if (out.files.count("tokenizer_config.json")) return;
  const bool sentencepiece = out.files.count("tokenizer.model") != 0;
  ordered_json config{{"tokenizer_class", sentencepiece ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                      {"model_max_length", job.model.max_position_embeddings},
                      {"clean_up_tokenization_spaces", false}};
  if (out.end_of_text && !sentencepiece)
    config["eos_token"] =
        bytes ? std::string(end_word) : tokenizer.decode(std::span<const int32_t>(&*out.end_of_text, 1));
  out.files["tokenizer_config.json"] = config.dump(2) + "\n";
}

// Whether a tokenizer.json normalizes and cuts text as Qwen2's own.
bool cuts_as_qwen2(const std::string& tokenizer_json) {
  const auto file = ordered_json::parse(tokenizer_json);
  const auto text = [&](const char* place) {
    return file.value(ordered_json::json_pointer(place), std::string());
  };
  const bool nfc = text("/normalizer/type") == "NFC" || text("/normalizer/normalizers/0/type") == "NFC";
  return nfc && word_pattern(text("/pre_tokenizer/pretokenizers/0/pattern/Regex")) == WordPattern::qwen2;
}

// What transformers makes of the files otherwise than Triax.
void add_notes(const RunConfig& job, HfTokenizer& out) {
  const bool sentencepiece = out.files.count("tokenizer.model") != 0;
  if (sentencepiece)
    out.notes.emplace_back(
        "transformers' LlamaTokenizer cuts text that begins with a space or has several in a row otherwise "
        "than SentencePiece, with which this model was trained; use the sentencepiece package for such "
        "text");
  if (job.model.qkv_bias && (sentencepiece || !cuts_as_qwen2(out.files.at("tokenizer.json"))))
    out.notes.push_back(fmt::format(
        "for this architecture AutoTokenizer of transformers 5 makes Qwen2's own tokenizer, whatever "
        "tokenizer_config.json says, and cuts text otherwise than this model learned it; read the folder's "
        "tokenizer with {}.from_pretrained(DIR)",
        sentencepiece ? "LlamaTokenizer" : "PreTrainedTokenizerFast"));
}

}  // namespace

HfTokenizer hf_tokenizer(const RunConfig& job) {
  HfTokenizer out;
  const bool bytes = is_bytes(job.data.tokenizer);
  if (bytes && !trained_on_text(job)) {
    out.notes = {
        "no tokenizer's files were written: the checkpoint comes from files of tokens, and its job does not "
        "say whose (data.tokenizer); copy them beside config.json"};
    return out;
  }
  try {
    const auto tokenizer = open_tokenizer(job.data.tokenizer);
    out.end_of_text = tokenizer->end_of_text();
    if (out.end_of_text && *out.end_of_text >= job.model.vocab_size) out.end_of_text.reset();
    if (bytes)
      out.files["tokenizer.json"] = byte_tokenizer(out.end_of_text.has_value());
    else
      copy_files(*tokenizer, out);
    describe(job, *tokenizer, bytes, out);
    add_notes(job, out);
  } catch (const Error& error) {
    out = {};
    out.notes = {fmt::format("no tokenizer's files were written: data.tokenizer: {}", error.what())};
  }
  return out;
}

}  // namespace triax
