// What fits where, and which grid should be quickest.
#include "engine/search.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "engine/job.h"
#include "model/gpt.h"

namespace triax {
namespace {

RunConfig gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t batch) {
  RunConfig c;
  c.model.vocab_size = 51200;
  c.model.hidden_size = hidden;
  c.model.num_hidden_layers = layers;
  c.model.num_attention_heads = c.model.num_key_value_heads = heads;
  c.model.intermediate_size = 4 * hidden;
  c.model.max_position_embeddings = c.training.sequence_length = 1024;
  c.training.steps = 10;
  c.training.global_batch_size = batch;
  c.training.micro_batch_size = 1;
  c.lr_schedule.decay_steps = 10;
  c.parallel.tensor = c.parallel.pipeline = c.parallel.data = 1;
  return c;
}

// One message of known size in a group of four on one node, nothing else.
TEST(StepCost, AnAllReduceTakesAlphaPerHopAndItsShareOfTheBytes) {
  JobPlan plan;
  plan.config = gpt(2, 64, 4, 4);
  plan.config.parallel.tensor = 4;
  plan.micro_batches = 4;
  plan.stages.resize(1);
  const double n = 4, size = 1e6;
  Recorder::Entry& entry = plan.stages[0].bytes_per_step[{"tp", CommOp::all_reduce}];
  entry.calls = 3;
  entry.bytes = 3 * 2 * (n - 1) / n * size;
  plan.stages[0].groups["tp"] = {0, 1, 2, 3};
  ClusterConfig cluster;
  const auto expected = [&](const Link& link) {
    return 3 * 2 * (n - 1) * (link.alpha + size / (n * link.bandwidth));
  };
  StepCost cost = step_cost(plan, cluster);
  EXPECT_NEAR(cost.tensor, expected(cluster.inside()), 1e-12);
  EXPECT_NEAR(cost.latency, 3 * 2 * (n - 1) * 5e-6, 1e-12);
  EXPECT_NEAR(cost.seconds, cost.tensor, 1e-12);
  plan.stages[0].groups["tp"] = {6, 7, 8, 9};  // over two nodes
  EXPECT_NEAR(step_cost(plan, cluster).tensor, expected(cluster.between()), 1e-12);
}

TEST(StepCost, KernelsTakeWhatTheRooflineSays) {
  JobPlan plan;
  plan.config = gpt(2, 64, 4, 4);
  plan.micro_batches = 4;
  plan.stages.resize(1);
  plan.stages[0].work = {{"gemm", 2e12, 1e9, 5}, {"norm_forward", 1e6, 2e9, 3}, {"adamw", 1e6, 4e9, 1}};
  ClusterConfig cluster;
  cluster.tflops = 100;
  cluster.memory_bandwidth = 1000;
  const StepCost cost = step_cost(plan, cluster);
  EXPECT_NEAR(cost.compute, 5 * 0.02 + 3 * 0.002, 1e-9);
  EXPECT_NEAR(cost.update, 0.004, 1e-9);
  EXPECT_NEAR(cost.seconds, cost.compute + cost.update, 1e-9);
}

TEST(Search, ListsWhatFitsQuickestFirstWithinNodes) {
  RunConfig c = gpt(8, 1024, 16, 64);
  c.parallel.tensor = c.parallel.pipeline = c.parallel.data = 0;
  ClusterConfig cluster;
  cluster.ranks_per_node = 4;
  const GridSearch found = search_grids(c, 16, cluster);
  ASSERT_FALSE(found.fitting.empty());
  for (size_t i = 0; i < found.fitting.size(); ++i) {
    const GridChoice& g = found.fitting[i];
    EXPECT_EQ(world_size(g.config), 16);
    EXPECT_LE(g.config.parallel.tensor, 4);
    EXPECT_LE(static_cast<double>(g.peak_bytes), cluster.device_model().bytes());
    EXPECT_NEAR(g.cost.seconds, g.cost.compute + g.cost.tensor + g.cost.bubble + g.cost.data + g.cost.update,
                1e-9);
    EXPECT_GE(g.cost.seconds, i ? found.fitting[i - 1].cost.seconds : 0);
  }
  EXPECT_GT(found.refused, 0);
  c.parallel.tensor = 2;
  for (const GridChoice& g : search_grids(c, 16, cluster).fitting) EXPECT_EQ(g.config.parallel.tensor, 2);
  cluster.memory = 0.1;
  const GridSearch tight = search_grids(c, 16, cluster);
  EXPECT_TRUE(tight.fitting.empty());
  EXPECT_FALSE(tight.too_large.empty());
}

TEST(Search, TheLargestMicroBatchFitsAndTheNextDoesNot) {
  const RunConfig c = gpt(4, 512, 8, 48);
  RunConfig four = c, six = c;
  four.training.micro_batch_size = 4;
  six.training.micro_batch_size = 6;
  const auto device = [](size_t bytes) {
    return DeviceModel{"test", static_cast<double>(bytes) / (1024.0 * 1024 * 1024), 1, 1, 1};
  };
  const DeviceModel any = device(1);
  const size_t of_four = bytes_on(plan_job(four, &any), any), of_six = bytes_on(plan_job(six, &any), any);
  ASSERT_LT(of_four, of_six);
  EXPECT_EQ(largest_micro_batch(c, device(of_four)), 4);
  EXPECT_EQ(largest_micro_batch(c, device(of_six - 1)), 4);
  EXPECT_EQ(largest_micro_batch(c, device(of_six)), 6);
  EXPECT_EQ(largest_micro_batch(c, device(1000)), std::nullopt);
}

// Published for Megatron-LM on V100s of 32 GiB with tensor 8: 16 to 20 billion parameters. fp32 keeps 16
// bytes per parameter (weight, gradient, two moments): 8 * 32 GiB hold 17.2 billion and nothing else.
TEST(Search, TheLargestGptOnEightDevicesOf32GiB) {
  RunConfig c = gpt(24, 1536, 24, 1);  // heads of 64, as in Megatron-LM's family
  c.parallel.tensor = 8;
  const DeviceModel device = device_named("32");
  // With one micro-batch activations lie in the gradients' memory, so that to keep fewer gains nothing.
  const auto keeps_all = largest_model(c, device);
  c.training.global_batch_size = 2;
  const auto of_two = largest_model(c, device);
  c.parallel.sequence_parallel = true;
  c.training.recompute = "full";
  const auto largest = largest_model(c, device);
  ASSERT_TRUE(largest);
  const double billions = static_cast<double>(parameter_count(largest->model)) / 1e9;
  EXPECT_GT(billions, 15);
  EXPECT_LT(billions, 17.2);
  EXPECT_LE(static_cast<double>(bytes_on(plan_job(*largest, &device), device)), device.bytes());
  ASSERT_TRUE(keeps_all && of_two);
  EXPECT_EQ(parameter_count(keeps_all->model), parameter_count(largest->model));
  EXPECT_LT(parameter_count(of_two->model), 0.95 * static_cast<double>(parameter_count(largest->model)));
  RecordProperty("billions", std::to_string(billions));
}

TEST(Cluster, RefusesTensorGroupsThatCrossNodes) {
  RunConfig c = gpt(32, 2048, 16, 64);
  c.parallel.tensor = 16;
  c.parallel.data = 64;
  try {
    check_tensor_within_node(c, 8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("tensor can be 1, 2, 4, 8"), std::string::npos) << error.what();
  }
  check_tensor_within_node(c, 16);
  c.parallel.allow_tensor_across_nodes = true;
  check_tensor_within_node(c, 8);
  EXPECT_TRUE(on_one_node({8, 9, 15}, 8));
  EXPECT_FALSE(on_one_node({7, 8}, 8));
}

TEST(Cluster, KnowsDevicesByNameAndBySize) {
  EXPECT_GT(device_named("h200").memory_gib, device_named("h100").memory_gib);
  EXPECT_EQ(device_named("24").bytes(), 24.0 * 1024 * 1024 * 1024);
  for (const char* wrong : {"h300", "", "-1", "8x"}) EXPECT_THROW(device_named(wrong), Error) << wrong;
}

TEST(Search, AutoTakesTheFirst) {
  const auto dir = std::filesystem::temp_directory_path() / ("triax-search-" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "corpus.txt") << std::string(4000, 'a');
  std::ofstream(dir / "cluster.yaml") << "ranks_per_node: 4\ndevice: a100\n";
  std::ofstream(dir / "job.yaml")
      << "model: {vocab_size: 256, hidden_size: 512, num_hidden_layers: 8, "
         "num_attention_heads: 8, intermediate_size: 2048, max_position_embeddings: 64}\n"
         "parallel: {tensor: auto, pipeline: auto}\n"
         "training: {steps: 1, global_batch_size: 32, micro_batch_size: 1, "
         "sequence_length: 64}\n"
         "data: {train: [{path: "
      << (dir / "corpus.txt").string() << "}]}\n";
  const std::string job = (dir / "job.yaml").string(), cluster = (dir / "cluster.yaml").string();
  const RunConfig chosen = load_job({job}, {}, {0, 8, cluster});
  RunConfig open = chosen;
  open.parallel.tensor = open.parallel.pipeline = open.parallel.data = 0;
  const RunConfig best = search_grids(open, 8, load_cluster(cluster)).fitting.at(0).config;
  EXPECT_EQ(chosen.parallel, best.parallel);
  EXPECT_EQ(world_size(chosen), 8);
  EXPECT_EQ(world_size(load_job({job}, {}, {})), 1);  // without a number of ranks auto is 1
  // Processes of a launcher must choose alike: they are told of the cluster, or of the grid.
  EXPECT_THROW(load_job({job}, {}, {8, 0, ""}), Error);
  EXPECT_EQ(load_job({job}, {}, {8, 0, cluster}).parallel, best.parallel);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace triax
