#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/hdf5_file.h"
#include "support/training.h"

namespace triax::test {

/// PyTorch's numbers in float64 for one model: a file of tests/golden.
struct Golden {
  RunConfig config;
  Batches batches;
  Tensors initial, gradients, final;
  std::vector<double> losses, norms;
};

inline Tensors read_tensors(const Hdf5File& file, const std::string& group) {
  Tensors tensors;
  for (const std::string& name : file.members(group)) tensors[name] = file.floats(group + "/" + name);
  return tensors;
}

/// Where the files lie: beside the tests, or where TRIAX_TEST_GOLDENS says (a bundle).
inline std::string golden_folder() {
  const char* named = std::getenv("TRIAX_TEST_GOLDENS");
  return named && *named ? named : TRIAX_SOURCE_DIR "/tests/golden";
}

inline Golden read_golden(const std::string& name) {
  const std::string path = golden_folder() + "/" + name + ".h5";
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

inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder()))
    if (entry.path().extension() == ".h5") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// GPT-2's, whose gradient is zero but for rounding; with rotary positions it is not.
inline bool idle(const Golden& golden, const std::string& name) {
  return golden.config.model.architecture == Architecture::gpt2 &&
         name.find("attention.k.bias") != std::string::npos;
}

inline void expect_golden(const Golden& golden, const TrainingRecord& record) {
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

/// tests/golden/bf16.json: how far PyTorch's bf16 is from float64.
inline nlohmann::json pytorch_in_bf16() {
  std::ifstream in(golden_folder() + "/bf16.json");
  return nlohmann::json::parse(in);
}

/// First gradients in bf16 are at most 1.5 times as far from float64 as PyTorch's: each tensor's, and those
/// of a few dozen elements, whose errors are a matter of luck (of the 331 tensors of the files four are
/// over 1.5, all of 24 or 48 elements, while the median is 0.9), all together.
inline void expect_gradients_as_near_as_pytorch(const std::string& name, const Golden& golden,
                                                const Tensors& gradients) {
  constexpr size_t few = 100;
  constexpr double factor = 1.5;
  const auto theirs = pytorch_in_bf16().at(name).at("gradients");
  double all = 0, our_few = 0, their_few = 0;
  for (const auto& [parameter, truth] : golden.gradients) all += norm(truth) * norm(truth);
  for (const auto& [parameter, truth] : golden.gradients) {
    if (idle(golden, parameter)) continue;
    const double error =
        distance(gradients.at(parameter), truth) / std::max(norm(truth), 1e-6 * std::sqrt(all));
    const double their_error = theirs.at(parameter).get<double>();
    if (truth.size() < few)
      our_few += error * error, their_few += their_error * their_error;
    else
      EXPECT_LT(error, factor * their_error) << name << ": " << parameter;
  }
  EXPECT_LT(std::sqrt(our_few), factor * std::sqrt(their_few))
      << name << ": tensors of few elements together";
}

}  // namespace triax::test
