#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace triax {

template <class S>
class FieldTable;

/// One file of tokens and its share of a blend.
struct DataSource {
  std::string path;     ///< absolute in a loaded job
  double weight = 1.0;  ///< relative to the other sources' weights
  bool operator==(const DataSource&) const = default;
};

/// The job file's `data`.
struct DataConfig {
  std::string tokenizer =
      "bytes";  ///< what made the tokens (data/tokenizer.h); a path is absolute in a loaded job
  std::vector<DataSource> train;
  std::vector<DataSource> validation;  ///< empty: none
  int64_t validation_interval = 100;   ///< steps
  int64_t validation_batches = 8;      ///< global batches
  bool operator==(const DataConfig&) const = default;
};

const FieldTable<DataSource>& fields_of(const DataSource*);
const FieldTable<DataConfig>& fields_of(const DataConfig*);

}  // namespace triax
