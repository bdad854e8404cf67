#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/fields.h"
#include "engine/job.h"
#include "engine/legal.h"

namespace triax::test {

/// One option of the test matrix and the values that it takes there.
struct MatrixAxis {
  std::string name;
  std::vector<std::string> values;
};

inline const std::vector<MatrixAxis>& matrix_axes() {
  static const std::vector<MatrixAxis> axes{
      {"tensor", {"1", "2", "4"}},          {"sequence_parallel", {"false", "true"}},
      {"pipeline", {"1", "2", "3"}},        {"schedule", {"gpipe", "1f1b", "interleaved", "zb-h1"}},
      {"virtual_stages", {"1", "2"}},       {"data", {"1", "2"}},
      {"zero_stage", {"0", "1"}},           {"recompute", {"none", "selective", "full", "full, in parts"}},
      {"precision", {"fp32", "bf16"}},      {"overlap_comm", {"false", "true"}},
      {"micro_batches", {"several", "one"}}};
  return axes;
}

/// A row of the matrix: the index of a value for each axis.
using MatrixRow = std::vector<size_t>;

inline const std::string& matrix_value(const MatrixRow& row, const std::string& axis) {
  const auto& axes = matrix_axes();
  const auto found =
      std::find_if(axes.begin(), axes.end(), [&](const MatrixAxis& a) { return a.name == axis; });
  return found->values[row[static_cast<size_t>(found - axes.begin())]];
}

/// The job of a row: a small model with dropout, an odd vocabulary and layers that no pipeline divides, on
/// the row's grid. Its first-step gradients and its losses are to be those of one rank.
inline RunConfig matrix_job(const MatrixRow& row, Architecture architecture) {
  const auto value = [&](const char* axis) { return matrix_value(row, axis); };
  const auto number = [&](const char* axis) { return std::stoi(matrix_value(row, axis)); };
  RunConfig c;
  const bool llama = architecture == Architecture::llama;
  c.model = {.architecture = architecture,
             .vocab_size = 61,
             .hidden_size = 24,
             .num_hidden_layers = 7,
             .num_attention_heads = 4,
             .num_key_value_heads = llama ? 2 : 4,
             .intermediate_size = 48,
             .max_position_embeddings = 10,
             .tie_word_embeddings = !llama,
             .initializer_range = 0.1,
             .qkv_bias = llama,
             .hidden_dropout = 0.1};
  c.training.steps = c.lr_schedule.decay_steps = 20;
  c.training.global_batch_size = 12;
  c.training.micro_batch_size = 1;
  c.training.sequence_length = 8;
  c.lr_schedule.warmup_steps = 4;
  c.parallel.tensor = number("tensor");
  c.parallel.sequence_parallel = value("sequence_parallel") == "true";
  c.parallel.pipeline = number("pipeline");
  c.parallel.schedule = value("schedule");
  c.parallel.virtual_stages = number("virtual_stages");
  c.parallel.data = number("data");
  c.parallel.zero_stage = number("zero_stage");
  c.training.recompute = value("recompute").substr(0, value("recompute").find(','));
  c.training.partition_activations = value("recompute") == "full, in parts";
  c.training.precision = value("precision");
  c.parallel.overlap_comm = value("overlap_comm") == "true";
  if (value("micro_batches") == "one")
    c.training.micro_batch_size = c.training.global_batch_size / c.parallel.data;
  c.parallel.reduce_bucket_size = 2000;  // a few buckets per stage
  return c;
}

/// Does the program take the row's job? It takes it for both architectures or for none.
inline bool is_legal(const MatrixRow& row) {
  const RunConfig config = matrix_job(row, Architecture::llama);
  FieldReport report;
  check_legal(config, world_size(config), "the matrix", report);
  return report.problems.empty();
}

/// Two values of two axes, as (axis, value, axis, value).
using MatrixPair = std::array<size_t, 4>;

inline std::vector<MatrixPair> pairs_of(const MatrixRow& row) {
  std::vector<MatrixPair> pairs;
  for (size_t a = 0; a < row.size(); ++a)
    for (size_t b = a + 1; b < row.size(); ++b) pairs.push_back({a, row[a], b, row[b]});
  return pairs;
}

/// Every legal row there is.
inline const std::vector<MatrixRow>& legal_rows() {
  static const std::vector<MatrixRow> rows = [] {
    std::vector<MatrixRow> all;
    MatrixRow row(matrix_axes().size());
    for (bool more = true; more;) {
      if (is_legal(row)) all.push_back(row);
      more = false;
      for (size_t a = row.size(); a-- > 0 && !more;)
        if (++row[a] < matrix_axes()[a].values.size())
          more = true;
        else
          row[a] = 0;
    }
    return all;
  }();
  return rows;
}

/// Rows in which every pair of values that any legal job has is met: one after the other the row with most
/// pairs that are still missing, the first of equals. A fixed list.
inline const std::vector<MatrixRow>& covering_rows() {
  static const std::vector<MatrixRow> chosen = [] {
    std::set<MatrixPair> missing;
    for (const MatrixRow& row : legal_rows())
      for (const MatrixPair& pair : pairs_of(row)) missing.insert(pair);
    std::vector<MatrixRow> rows;
    while (!missing.empty()) {
      const MatrixRow* best = nullptr;
      size_t most = 0;
      for (const MatrixRow& row : legal_rows()) {
        const auto pairs = pairs_of(row);
        const size_t news = static_cast<size_t>(
            std::count_if(pairs.begin(), pairs.end(), [&](const auto& p) { return missing.count(p) != 0; }));
        if (news > most) best = &row, most = news;
      }
      for (const MatrixPair& pair : pairs_of(*best)) missing.erase(pair);
      rows.push_back(*best);
    }
    return rows;
  }();
  return chosen;
}

}  // namespace triax::test
