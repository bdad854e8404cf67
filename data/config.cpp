#include "data/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/fields.h"
#include "data/glob.h"

namespace triax {

const FieldTable<DataSource>& fields_of(const DataSource*) {
  static const FieldTable<DataSource> table = [] {
    FieldTable<DataSource> t;
    t.add(
         "path", &DataSource::path,
         "Tokens: a .txt or .jsonl file (bytes), a .bin file of llm.c, or the .bin, .idx or common prefix of "
         "Megatron-LM's pair; or a pattern of such, as data/*.bin, whose files share the weight by their "
         "bytes.")
        .must_be_given();
    t.add("weight", &DataSource::weight, "Share in the blend, relative to the other sources.").above(0);
    return t;
  }();
  return table;
}

const FieldTable<DataConfig>& fields_of(const DataConfig*) {
  static const FieldTable<DataConfig> table = [] {
    using C = DataConfig;
    FieldTable<C> t;
    t.add(
        "tokenizer", &C::tokenizer,
        "What makes text of tokens and back: bytes, a SentencePiece FILE.model, or a tokenizer.json (or its "
        "folder); sources of text are read only as bytes.");
    t.add("json_key", &C::json_key, "Key of a .jsonl source's objects under which the text stands.");
    t.add("train", &C::train, "Sources to train on.").must_be_given();
    t.add("validation", &C::validation, "Sources to measure the validation loss on.").derived("none");
    t.add("validation_interval", &C::validation_interval, "Steps between two measurements.").at_least(1);
    t.add("validation_batches", &C::validation_batches, "Global batches of one measurement.").at_least(1);
    for (const char* key : {"reset_position_ids", "reset_attention_mask", "eod_mask_loss", "reset_positions"})
      t.refuse(key,
               "is out of scope: a sample is consecutive tokens of its source, attended to and learnt from "
               "over the "
               "ends of documents; leave it out");
    return t;
  }();
  return table;
}

std::vector<std::string> expand_globs(std::vector<DataSource>& sources, const std::string& key) {
  std::vector<std::string> problems;
  std::vector<DataSource> expanded;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!is_glob(sources[i].path)) {
      expanded.push_back(sources[i]);
      continue;
    }
    const std::vector<std::string> files = expand_glob(sources[i].path);
    if (files.empty())
      problems.push_back(fmt::format("{}[{}].path: {}: no file fits this pattern", key, i, sources[i].path));
    std::error_code error;
    double total = 0;
    for (const std::string& file : files)
      total += static_cast<double>(std::filesystem::file_size(file, error));
    for (const std::string& file : files) {
      // An empty file is refused when it is opened, and must not spoil the others' weights before.
      const auto bytes = static_cast<double>(std::max<uintmax_t>(std::filesystem::file_size(file, error), 1));
      expanded.push_back(
          {file, files.size() == 1 ? sources[i].weight : sources[i].weight * bytes / std::max(total, 1.0)});
    }
  }
  sources = std::move(expanded);
  return problems;
}

}  // namespace triax
