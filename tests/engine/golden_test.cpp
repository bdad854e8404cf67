// Triax against PyTorch in float64 (tests/golden, made by scripts/make_goldens.py), on one rank and on grids.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/hdf5_file.h"
#include "support/training.h"

namespace triax::test {
namespace {

struct Golden {
  RunConfig config;
  Batches batches;
  Tensors initial, gradients, final;
  std::vector<double> losses, norms;
};

Tensors read_tensors(const Hdf5File& file, const std::string& group) {
  Tensors tensors;
  for (const std::string& name : file.members(group)) tensors[name] = file.floats(group + "/" + name);
  return tensors;
}

Golden read_golden(const std::string& path) {
  const Hdf5File file(path);
  Golden golden;
  std::vector<std::string> problems;
  FieldReport report;
  RunConfig& config = golden.config;
  const ConfigNode tree = parse_yaml(file.text_attribute("job_yaml"), path, problems);
  fields_of(&config.model).read(*tree.find("model"), &config.model, "model", report);
  fields_of(&config.training).read(*tree.find("training"), &config.training, "training", report);
  fields_of(&config.optimizer).read(*tree.find("optimizer"), &config.optimizer, "optimizer", report);
  fields_of(&config.lr_schedule).read(*tree.find("lr_schedule"), &config.lr_schedule, "lr_schedule", report);
  problems.insert(problems.end(), report.problems.begin(), report.problems.end());
  if (!problems.empty()) throw std::runtime_error(problems.front());
  if (!config.model.num_key_value_heads) config.model.num_key_value_heads = config.model.num_attention_heads;
  config.parallel = {};
  config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 1;

  const std::vector<int32_t> tokens = file.ints("tokens");
  const size_t batch =
      static_cast<size_t>(config.training.global_batch_size * (config.training.sequence_length + 1));
  for (size_t at = 0; at < tokens.size(); at += batch)
    golden.batches.emplace_back(tokens.begin() + static_cast<int64_t>(at),
                                tokens.begin() + static_cast<int64_t>(at + batch));
  golden.initial = read_tensors(file, "initial");
  golden.gradients = read_tensors(file, "gradients");
  golden.final = read_tensors(file, "final");
  golden.losses = file.doubles("losses");
  golden.norms = file.doubles("grad_norms");
  return golden;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TRIAX_SOURCE_DIR "/tests/golden"))
    if (entry.path().extension() == ".h5") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// GPT-2's, whose gradient is zero but for rounding; with rotary positions it is not.
bool idle(const Golden& golden, const std::string& name) {
  return golden.config.model.architecture == Architecture::gpt2 &&
         name.find("attention.k.bias") != std::string::npos;
}

void expect_golden(const Golden& golden, const TrainingRecord& record) {
  std::string worst;
  const double error = gradient_error(record.first_gradients, golden.gradients, &worst);
  EXPECT_LT(error, 1e-5) << worst;
  ASSERT_EQ(record.losses.size(), golden.losses.size());
  for (size_t s = 0; s < golden.losses.size(); ++s) {
    EXPECT_NEAR(record.losses[s] / golden.losses[s], 1.0, 1e-5) << "step " << s + 1;
    EXPECT_NEAR(record.norms[s] / golden.norms[s], 1.0, 1e-4) << "step " << s + 1;
  }
  for (const auto& [name, weights] : golden.final) {
    if (idle(golden, name)) continue;
    EXPECT_LT(distance(record.weights.at(name), weights) / norm(weights), 1e-4) << name;
  }
}

/// norm(a - b) / norm(b) over all tensors together.
double whole_distance(const Golden& golden, const Tensors& a, const Tensors& b) {
  double difference = 0, size = 0;
  for (const auto& [name, tensor] : b) {
    if (idle(golden, name)) continue;
    difference += std::pow(distance(a.at(name), tensor), 2);
    size += std::pow(norm(tensor), 2);
  }
  return std::sqrt(difference / size);
}

/// Root mean square of the losses' relative errors.
double loss_error(const Golden& golden, const TrainingRecord& record) {
  double squares = 0;
  for (size_t s = 0; s < golden.losses.size(); ++s)
    squares += std::pow(record.losses.at(s) / golden.losses[s] - 1, 2);
  return std::sqrt(squares / static_cast<double>(golden.losses.size()));
}

class GoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  Golden golden_ = read_golden(TRIAX_SOURCE_DIR "/tests/golden/" + GetParam() + ".h5");
};

TEST_P(GoldenTest, OneRankIsPyTorch) {
  const TrainingRecord record = train(golden_.config, golden_.batches, golden_.initial, 2);
  expect_golden(golden_, record);
  EXPECT_EQ(record.planned_peak, record.measured_peak);
}

TEST_P(GoldenTest, TensorAndPipelineAndDataArePyTorch) {
  RunConfig config = golden_.config;
  config.parallel.tensor =
      config.model.num_key_value_heads % 4 == 0 || config.model.num_key_value_heads == 1 ? 4 : 3;
  if (config.model.num_key_value_heads == 2) config.parallel.tensor = 4;
  config.parallel.pipeline = 2;
  config.parallel.data = 2;
  expect_golden(golden_, train(config, golden_.batches, golden_.initial));
}

TEST_P(GoldenTest, SequenceParallelWithRecomputationIsPyTorch) {
  RunConfig config = golden_.config;
  config.parallel.tensor = config.model.num_key_value_heads == 3 ? 3 : 2;
  config.parallel.sequence_parallel = true;
  config.training.recompute = "full";
  expect_golden(golden_, train(config, golden_.batches, golden_.initial));
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTest, ::testing::ValuesIn(golden_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Errors in bf16 against float64, at most 1.5 times those of PyTorch's bf16 (tests/golden/bf16.json):
// gradients and weights of each file; losses, of which a file has ten with errors of either sign, over all
// files together.
TEST(GoldenBf16, ErrsNoMoreThanPyTorch) {
  constexpr double factor = 1.5;
  std::ifstream in(TRIAX_SOURCE_DIR "/tests/golden/bf16.json");
  const auto pytorch = nlohmann::json::parse(in);
  double our_losses = 0, their_losses = 0;
  for (const std::string& name : golden_names()) {
    Golden golden = read_golden(TRIAX_SOURCE_DIR "/tests/golden/" + name + ".h5");
    const auto theirs = [&](const char* what) { return pytorch.at(name).at(what).get<double>(); };
    golden.config.training.precision = "bf16";
    const TrainingRecord record = train(golden.config, golden.batches, golden.initial);
    EXPECT_EQ(record.planned_peak, record.measured_peak) << name;
    EXPECT_LT(whole_distance(golden, record.first_gradients, golden.gradients), factor * theirs("gradient"))
        << name;
    EXPECT_LT(whole_distance(golden, record.weights, golden.final), factor * theirs("weight")) << name;
    Tensors ours = record.first_gradients, truth = golden.gradients;
    for (Tensors* gradients : {&ours, &truth})
      std::erase_if(*gradients, [&](const auto& g) { return idle(golden, g.first); });
    std::string worst;
    EXPECT_LT(gradient_error(ours, truth, &worst), factor * theirs("worst_gradient"))
        << name << ": " << worst;
    our_losses += std::pow(loss_error(golden, record), 2);
    their_losses += std::pow(theirs("loss"), 2);
  }
  EXPECT_LT(std::sqrt(our_losses), factor * std::sqrt(their_losses));
}

}  // namespace
}  // namespace triax::test
