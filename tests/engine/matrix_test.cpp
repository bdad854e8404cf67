// The matrix of the job file's ways to split and to compute: every legal pair of values, for both
// architectures, is met by one of covering_rows(), each of which is run for both. docs/parallelism_matrix.md
// shows the list; it is written by
//     TRIAX_WRITE_DOCS=1 build/tests/test_engine --gtest_filter=Matrix.TheTableInDocsIsThisList

#include "support/matrix.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/verify.h"
#include "support/sanitizer.h"
#include "support/training.h"

namespace triax::test {
namespace {

constexpr size_t quick = 12;  // rows that `make test` runs
constexpr int64_t steps = sanitized ? 2 : 20;

MatrixRow with(MatrixRow row, const std::string& axis, const std::string& value) {
  const auto& axes = matrix_axes();
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a].name == axis)
      row[a] = static_cast<size_t>(std::find(axes[a].values.begin(), axes[a].values.end(), value) -
                                   axes[a].values.begin());
  return row;
}

// What must not matter, set to the plainest: the row's base has its bits.
MatrixRow base_of(MatrixRow row) {
  for (const auto& [axis, value] : {std::pair{"pipeline", "1"},
                                    {"schedule", "1f1b"},
                                    {"virtual_stages", "1"},
                                    {"zero_stage", "1"},
                                    {"recompute", "none"},
                                    {"overlap_comm", "false"}})
    row = with(std::move(row), axis, value);
  return row;
}

MatrixRow one_rank(MatrixRow row) {
  row = base_of(std::move(row));
  for (const auto& [axis, value] : {std::pair{"tensor", "1"},
                                    {"sequence_parallel", "false"},
                                    {"data", "1"},
                                    {"micro_batches", "several"}})
    row = with(std::move(row), axis, value);
  return row;
}

std::string name_of(const MatrixRow& row) {
  std::string name;
  for (const MatrixAxis& axis : matrix_axes())
    name += fmt::format("{}{} {}", name.empty() ? "" : ", ", axis.name, matrix_value(row, axis.name));
  return name;
}

// One row at a time; what several rows are compared with is computed once.
class Runner {
 public:
  explicit Runner(Architecture architecture) : architecture_(architecture) {}
  void check(const MatrixRow& row) {
    const TrainingRecord record = run(row);
    const VerifyBounds bounds = bounds_of(matrix_job(row, architecture_));
    expect_close(record, known(one_rank(row)), name_of(row), bounds.gradient, bounds.loss);
    expect_identical(record, known(base_of(row)), name_of(row));
    // In one micro-batch the base's activations lie in the gradients' memory; under zb-h1 nobody's do.
    if (matrix_value(row, "micro_batches") == "one")
      expect_identical(record, known(with(base_of(row), "schedule", "zb-h1")), name_of(row));
    EXPECT_EQ(record.planned_peak, record.measured_peak) << name_of(row);
  }

 private:
  TrainingRecord run(const MatrixRow& row) const {
    const RunConfig config = matrix_job(row, architecture_);
    return train(config, random_batches(config, steps, 31));
  }
  const TrainingRecord& known(const MatrixRow& row) {
    const auto found = known_.find(row);
    return found != known_.end() ? found->second : known_[row] = run(row);
  }
  Architecture architecture_;
  std::map<MatrixRow, TrainingRecord> known_;
};

std::set<MatrixPair> pairs_met(size_t rows) {
  std::set<MatrixPair> met;
  for (size_t i = 0; i < rows; ++i)
    for (const MatrixPair& pair : pairs_of(covering_rows()[i])) met.insert(pair);
  return met;
}

std::string table() {
  const auto& rows = covering_rows();
  const size_t all = pairs_met(rows.size()).size(), first = pairs_met(quick).size();
  std::string text = fmt::format(
      R"(# The test matrix

Each row is a job that is trained for 20 steps, of GPT-2 and of LLaMA ({} layers, dropout, an odd vocabulary), on the row's
grid. Its first-step gradients and its losses must be those of one rank in its precision within 1e-5 (bf16: gradients 0.1,
losses 5e-3); all its losses, norms, weights and moments must have the bits of the same tensor, sequence_parallel and data
degree, precision and micro-batches without pipeline, recomputation and overlap, under `1f1b` and ZeRO 1 (with one micro-batch
also under `zb-h1`, where activations never lie in the gradients' memory); and its memory must be the planned one, to the byte.

Of the {} legal combinations of these values the {} rows meet each of the {} legal pairs of values at least once; "in
parts" is `training.partition_activations`; `several` micro-batches are of one sequence each, `one` is of all sequences of a
data rank. `make test` runs the first {} rows ({} pairs, every value), odd ones of GPT-2 and even ones of LLaMA;
`make test-full` runs all rows of both. The list and this page are made by `tests/engine/matrix_test.cpp`, which fails when
they differ.

|)",
      matrix_job(rows[0], Architecture::gpt2).model.num_hidden_layers, legal_rows().size(), rows.size(), all,
      quick, first);
  std::string rule = "\n|---|";
  text += " row |";
  for (const MatrixAxis& axis : matrix_axes()) text += " " + axis.name + " |", rule += "---|";
  text += rule + "\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    text += fmt::format("| {} |", i + 1);
    for (const MatrixAxis& axis : matrix_axes()) text += " " + matrix_value(rows[i], axis.name) + " |";
    text += "\n";
  }
  return text;
}

TEST(Matrix, EveryLegalPairIsMetAndEveryValueByTheFirstRows) {
  std::set<MatrixPair> legal;
  for (const MatrixRow& row : legal_rows())
    for (const MatrixPair& pair : pairs_of(row)) legal.insert(pair);
  EXPECT_EQ(pairs_met(covering_rows().size()), legal);
  EXPECT_GT(legal.size(), 150U);
  std::set<std::pair<size_t, size_t>> values;
  for (size_t i = 0; i < quick; ++i)
    for (size_t a = 0; a < matrix_axes().size(); ++a) values.insert({a, covering_rows()[i][a]});
  size_t all = 0;
  for (const MatrixAxis& axis : matrix_axes()) all += axis.values.size();
  EXPECT_EQ(values.size(), all);
}

TEST(Matrix, TheTableInDocsIsThisList) {
  const std::string path = TRIAX_SOURCE_DIR "/docs/parallelism_matrix.md";
  if (std::getenv("TRIAX_WRITE_DOCS")) std::ofstream(path) << table();
  std::ifstream file(path);
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), table()) << "write it anew: see the first lines of this test's source";
}

TEST(Matrix, FirstRows) {
  Runner gpt2(Architecture::gpt2), llama(Architecture::llama);
  for (size_t i = 0; i < quick; ++i) (i % 2 ? llama : gpt2).check(covering_rows()[i]);
}

class FullMatrix : public ::testing::TestWithParam<Architecture> {};

TEST_P(FullMatrix, AllRows) {
  Runner runner(GetParam());
  for (const MatrixRow& row : covering_rows()) runner.check(row);
}

INSTANTIATE_TEST_SUITE_P(FullModels, FullMatrix, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
