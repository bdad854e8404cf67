// Triax against PyTorch in float64 (tests/golden, made by scripts/make_goldens.py), on one rank and on grids.

#include <gtest/gtest.h>

#include "support/golden.h"

namespace triax::test {
namespace {

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
  Golden golden_ = read_golden(GetParam());
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
  const auto pytorch = pytorch_in_bf16();
  double our_losses = 0, their_losses = 0;
  for (const std::string& name : golden_names()) {
    Golden golden = read_golden(name);
    const auto theirs = [&](const char* what) { return pytorch.at(name).at(what).get<double>(); };
    golden.config.training.precision = "bf16";
    const TrainingRecord record = train(golden.config, golden.batches, golden.initial);
    expect_gradients_as_near_as_pytorch(name, golden, record.first_gradients);
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
