// `triax bench step` on devices that are not the host: what it says of their memory and of the time in
// communication, on the emulated library and on the foreign device, which works beside the host.

#include "job_runs.h"

namespace triax::test {
namespace {

class DeviceBench : public JobRuns {
 protected:
  DeviceBench()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 256,
        max_position_embeddings: 32}
training: {steps: 4, global_batch_size: 4, micro_batch_size: 1, sequence_length: 32, threads: 1, precision: bf16,
           device: cuda}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 2, decay_steps: 4}
parallel: {tensor: 1, pipeline: 1, data: 1}
logging: {tensorboard: false}
)") {}

  /// What `triax COMMAND job.yaml --json` says.
  nlohmann::json say(const std::string& command, const std::string& grid,
                     const std::string& environment) const {
    const std::string line = "cd " + dir_.string() + " && env " + environment + TRIAX_BINARY_DIR + "/triax " +
                             command + " job.yaml --json " + grid + " >out.json 2>err.txt";
    EXPECT_EQ(std::system(line.c_str()), 0) << line;
    std::ifstream in(dir_ / "out.json");
    return nlohmann::json::parse(in);
  }
};

TEST_F(DeviceBench, AllocatesWhatIsPlanned) {
  const auto found = say("bench step --steps 2", "", device_library("triax_cuda_emulated.so"));
  const auto plan = say("plan", "--ranks 1", "");
  const auto& memory = found.at("memory");
  EXPECT_EQ(memory.at("allocated_bytes"), memory.at("planned_bytes"));
  size_t states = 0, on_device = 0;
  for (const auto& [name, bytes] : plan.at("stages")[0].at("memory").items()) {
    if (name == "weights" || name == "gradients" || name == "optimizer") states += bytes.get<size_t>();
    if (name != "snapshot" && name != "page-locked") on_device += bytes.get<size_t>();
  }
  EXPECT_EQ(memory.at("planned_bytes"), on_device);
  EXPECT_EQ(memory.at("beyond_bytes"), on_device - states);
  EXPECT_EQ(memory.at("taken_bytes"), on_device);  // the emulated GPU has no pages, and nobody else is there
  EXPECT_FALSE(found.contains("communication"));
}

TEST_F(DeviceBench, CommunicationIsTimedOnTheDevicesClock) {
  for (const std::string& device : {device_library("triax_cuda_emulated.so"),
                                    "TRIAX_FOREIGN_ASYNC=1 " + device_library("triax_cuda_foreign.so")})
    for (const std::string axis : {"tensor", "pipeline", "data"}) {
      const std::string grid = "--ranks 2 --set parallel." + axis + "=2";
      const auto found = say("bench step --steps 2", grid, device);
      const auto plan = say("plan", grid, "");
      // Calls and bytes of a rank, on average, are those planned.
      std::map<std::pair<std::string, std::string>, std::pair<double, double>> planned;
      const auto& stages = plan.at("stages");
      for (const auto& stage : stages)
        for (const auto& [group, operations] : stage.at("bytes_per_step").items())
          for (const auto& [operation, sum] : operations.items()) {
            planned[{group, operation}].first += sum.at("calls").get<double>() / stages.size();
            planned[{group, operation}].second += sum.at("bytes").get<double>() / stages.size();
          }
      double moving = 0;
      size_t compared = 0;
      for (const auto& line : found.at("communication")) {
        const std::pair<std::string, std::string> key{line.at("group"), line.at("operation")};
        ASSERT_EQ(planned.count(key), 1U) << key.first << " " << key.second;
        EXPECT_DOUBLE_EQ(line.at("calls"), planned[key].first) << key.first << " " << key.second;
        EXPECT_DOUBLE_EQ(line.at("bytes"), planned[key].second) << key.first << " " << key.second;
        EXPECT_GT(line.at("held_seconds"), 0) << key.first << " " << key.second;
        EXPECT_LT(line.at("held_seconds"), found.at("clocked_seconds").get<double>() * 1.5);
        moving += line.at("moving_seconds").get<double>();
        ++compared;
      }
      EXPECT_GE(compared, 2U) << axis;
      EXPECT_GT(moving, 0) << axis;
    }
}

}  // namespace
}  // namespace triax::test
