// Whole jobs whose numbers go wrong: what is kept, what is told, and how they go on.

#include "job_runs.h"

namespace triax::test {
namespace {

class GuardTest : public JobRuns {
 protected:
  GuardTest()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 48,
        max_position_embeddings: 8}
training: {steps: 6, global_batch_size: 8, micro_batch_size: 1, sequence_length: 8, threads: 1}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 2, decay_steps: 6}
parallel: {tensor: 2, pipeline: 1, data: 2}
checkpoint: {interval: 1000}
debug: {nonfinite_gradient_at: [3, 4]}
logging: {tensorboard: false}
)") {}

  std::vector<nlohmann::json> lines(const std::string& out) const {
    std::vector<nlohmann::json> lines;
    std::ifstream in(dir_ / out / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

constexpr const char* skip = "--set training.on_nonfinite=skip ";

TEST_F(GuardTest, AJobThatSkipsResumesInTheMiddleAndOnOtherGridsBitForBit) {
  ASSERT_EQ(triax("whole", skip), 0) << output("whole");
  const auto whole = lines("whole");
  ASSERT_EQ(whole.size(), 6U);
  EXPECT_TRUE(whole[2]["grad_norm"].is_null() && whole[2]["loss"].is_number() && whole[2]["skipped"] == true)
      << whole[2];
  EXPECT_EQ(whole[3]["consumed_samples"], 32);
  EXPECT_FALSE(whole[4].contains("skipped"));
  EXPECT_NE(output("whole").find("first: the gradient of embed.tokens.weight on rank 3: 1 of "),
            std::string::npos)
      << output("whole");
  EXPECT_NE(output("whole").find("the 2. in a row of at most 10"), std::string::npos) << output("whole");

  ASSERT_EQ(triax("parts", skip + std::string("--set training.steps=3")), 0) << output("parts");
  // One step was skipped before the stop, and one comes after it: two in a row.
  EXPECT_EQ(triax("parts", skip + std::string("--set training.max_skipped_steps=1")), 1) << output("parts");
  ASSERT_EQ(triax("parts", skip + std::string("--set parallel.pipeline=2 --ranks 8")), 0) << output("parts");
  EXPECT_EQ(tensors("parts", 6), tensors("whole", 6));
  EXPECT_EQ(lines("parts").size(), 6U);
  EXPECT_EQ(lines("parts")[5]["loss"], whole[5]["loss"]);

  if (!have_mpirun()) return;
  ASSERT_EQ(triax("mpi", skip, std::string(mpirun) + "-n 4 "), 0) << output("mpi");
  EXPECT_EQ(tensors("mpi", 6), tensors("whole", 6));
}

TEST_F(GuardTest, AJobThatStopsKeepsItsCheckpointAndItsState) {
  EXPECT_EQ(triax("stop", "--set checkpoint.every_minutes=0 --set checkpoint.save_initial=true"), 1);
  const std::string said = output("stop");
  EXPECT_NE(said.find("no rank has changed a weight or a moment"), std::string::npos) << said;
  EXPECT_NE(said.find("first: the gradient of embed.tokens.weight on rank 3"), std::string::npos) << said;
  EXPECT_TRUE(fs::exists(checkpoint("stop", 0) / "manifest.json"));
  const auto state = manifest(dir_ / "stop/stopped/step-00000002");
  EXPECT_EQ(state["step"], 2);
  EXPECT_EQ(lines("stop").size(), 2U);
  // The same job without the fault goes on from its own checkpoint.
  EXPECT_EQ(triax("stop", "--set debug.nonfinite_gradient_at=[]"), 0) << output("stop");
  EXPECT_EQ(lines("stop").size(), 6U);
}

// Measured every second step; a resumed run's averages go on, and what compares replicas keeps to its plan.
TEST_F(GuardTest, NoiseScaleAndComparisonsGoOnAfterAResume) {
  const std::string keys =
      "--set debug.nonfinite_gradient_at=[] --set logging.gradient_noise_scale=2 --set "
      "logging.check_replicas=2 ";
  ASSERT_EQ(triax("whole", keys), 0) << output("whole");
  ASSERT_EQ(triax("parts", keys + "--set training.steps=3"), 0) << output("parts");
  ASSERT_EQ(triax("parts", keys), 0) << output("parts");
  const auto whole = lines("whole"), parts = lines("parts");
  for (size_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(whole[step - 1].contains("gradient_noise_scale"), step % 2 == 0);
    for (const char* key : {"loss", "gradient_noise_scale", "gradient_noise_trace", "gradient_norm_squared"})
      EXPECT_EQ(whole[step - 1].value(key, nlohmann::json()), parts[step - 1].value(key, nlohmann::json()))
          << key;
  }
  EXPECT_EQ(tensors("parts", 6), tensors("whole", 6));
}

}  // namespace
}  // namespace triax::test
