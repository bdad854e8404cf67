#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace triax {

template <class S>
class FieldTable;

/// One file of tokens and its share of a blend.
struct DataSource {
  std::string path;     ///< absolute in a loaded job, patterns expanded
  double weight = 1.0;  ///< relative to the other sources' weights
  bool operator==(const DataSource&) const = default;
};

/// The job file's `data`.
struct DataConfig {
  std::string tokenizer =
      "bytes";  ///< what made the tokens (data/tokenizer.h); a path is absolute in a loaded job
  std::string json_key = "text";  ///< of .jsonl sources: where an object has its text
  std::vector<DataSource> train;
  std::vector<DataSource> validation;  ///< empty: none
  int64_t validation_interval = 100;   ///< steps
  int64_t validation_batches = 8;      ///< global batches
  bool operator==(const DataConfig&) const = default;
};

/// Puts the files of each pattern (`*.bin`, glob.h) in its place, in order, each with the pattern's weight
/// times its share of their bytes (of a pair PREFIX.bin and PREFIX.idx those of the .bin). Returns what is
/// wrong with patterns that no file fits, one sentence for each, `key` in front.
std::vector<std::string> expand_globs(std::vector<DataSource>& sources, const std::string& key);

const FieldTable<DataSource>& fields_of(const DataSource*);
const FieldTable<DataConfig>& fields_of(const DataConfig*);

}  // namespace triax
