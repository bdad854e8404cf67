// Whole jobs whose processes each have a GPU of their own, by what stands for NCCL on the emulated runtime
// (tests/emulated_cuda): training, and how it ends when a rank or NCCL fails.

#include <chrono>
#include <cmath>

#include "job_runs.h"

namespace triax::test {
namespace {

class NcclJob : public JobRuns {
 protected:
  NcclJob()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 48,
        max_position_embeddings: 16}
training: {steps: 3, global_batch_size: 4, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 1, decay_steps: 3}
parallel: {tensor: 1, pipeline: 1, data: 1, reduce_bucket_size: 10000}
checkpoint: {interval: 3}
logging: {tensorboard: false, gradient_noise_scale: 1, check_replicas: 2}
)") {}

  void SetUp() override {
    if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  }

  static std::string on_gpus(int gpus, const std::string& more = "") {
    const std::string lib = std::string(TRIAX_BINARY_DIR) + "/lib/";
    return device_library("triax_cuda_emulated.so") + "TRIAX_NCCL_LIBRARY=" + lib +
           "libnccl_emulated.so TRIAX_EMULATED_GPUS=" + std::to_string(gpus) + " " + more + " " + mpirun +
           "-n 4 ";
  }
  bool says(const std::string& out, const std::string& words) const {
    return output(out).find(words) != std::string::npos;
  }
  void expect_close(const std::string& out, const std::string& reference) const {
    const auto a = metrics(out), b = metrics(reference);
    ASSERT_EQ(a.size(), 3U) << output(out);
    for (const auto& [step, numbers] : b) {
      EXPECT_LT(std::abs(a.at(step).first / numbers.first - 1), 1e-5) << out << ", step " << step;
      EXPECT_LT(std::abs(a.at(step).second / numbers.second - 1), 1e-4) << out << ", step " << step;
    }
  }
  /// The job with `signal` sent to rank 1 after a while; seconds until it ends, which is not well.
  double signalled(const std::string& out, const std::string& signal, const std::string& options) const {
    std::ofstream script(dir_ / "rank.sh");
    script << "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then (while [ ! -s " << out
           << "/metrics.jsonl ]; do sleep 0.1; done; echo signal >&2; kill -" << signal
           << " $$) & fi\nexec \"$@\"\n";
    script.close();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_NE(triax(out, options, on_gpus(4) + "sh rank.sh "), 0) << output(out);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

const std::string cuda = " --set training.device=cuda ", staged = " --set parallel.transport=host ",
                  deterministic = " --set training.deterministic=true ";

TEST_F(NcclJob, AgreesWithTheCpuAndHasItsOwnBitsInRankOrder) {
  const std::string grid = "--set parallel.tensor=2 --set parallel.data=2 ";
  ASSERT_EQ(triax("cpu", grid), 0) << output("cpu");
  ASSERT_EQ(triax("nccl", grid + cuda, on_gpus(4)), 0) << output("nccl");
  EXPECT_TRUE(says("nccl", "messages between GPUs: tp, dp, sums: NCCL 2.28.9\n")) << output("nccl");
  expect_close("nccl", "cpu");
  ASSERT_EQ(triax("ordered", grid + cuda + deterministic, on_gpus(4)), 0) << output("ordered");
  EXPECT_TRUE(says("ordered", "NCCL 2.28.9, sums in rank order")) << output("ordered");
  ASSERT_EQ(triax("staged", grid + cuda + staged, on_gpus(4)), 0) << output("staged");
  EXPECT_TRUE(says("staged", "host memory: parallel.transport is host")) << output("staged");
  EXPECT_EQ(metrics("ordered"), metrics("staged"));
  EXPECT_EQ(tensors("ordered", 3), tensors("staged", 3));
}

TEST_F(NcclJob, AnyScheduleHasTheSameBitsInRankOrder) {
  const std::string four =
      " --set training.micro_batch_size=1 --set model.num_hidden_layers=4 " + cuda + deterministic;
  ASSERT_EQ(triax("data", "--set parallel.data=4 --set parallel.overlap_comm=false" + four, on_gpus(4)), 0)
      << output("data");
  ASSERT_EQ(triax("zero", "--set parallel.data=4 --set parallel.zero_stage=0" + four, on_gpus(4)), 0)
      << output("zero");
  EXPECT_EQ(tensors("zero", 3), tensors("data", 3));
  const std::string stages = "--set parallel.pipeline=2 --set parallel.data=2 ";
  ASSERT_EQ(triax("gpipe", stages + "--set parallel.schedule=gpipe" + four, on_gpus(4)), 0)
      << output("gpipe");
  ASSERT_EQ(triax("interleaved",
                  stages + "--set parallel.schedule=interleaved --set parallel.virtual_stages=2 " + four,
                  on_gpus(4)),
            0)
      << output("interleaved");
  EXPECT_EQ(tensors("interleaved", 3), tensors("gpipe", 3));
  EXPECT_EQ(metrics("interleaved"), metrics("gpipe"));
}

TEST_F(NcclJob, TrainsInBf16WithTheBitsOfStagedMessages) {
  // Sums of bf16 are in rank order anyway; those of gradients are f32.
  const std::string grid =
      "--set parallel.tensor=2 --set parallel.pipeline=2 --set training.precision=bf16 " + cuda;
  ASSERT_EQ(triax("nccl", grid + deterministic, on_gpus(4)), 0) << output("nccl");
  ASSERT_EQ(triax("staged", grid + staged, on_gpus(4)), 0) << output("staged");
  EXPECT_EQ(tensors("nccl", 3), tensors("staged", 3));
}

TEST_F(NcclJob, RanksThatShareAGpuStageAndSaySo) {
  const std::string grid = "--set parallel.tensor=2 --set parallel.data=2 " + cuda;
  ASSERT_EQ(triax("two", grid, on_gpus(2)), 0) << output("two");
  // Ranks 0 and 2 have GPU 0: the tensor groups have two GPUs, the data groups one.
  EXPECT_TRUE(says("two", "dp, sums: host memory: ranks 0 and 2 share a GPU") &&
              says("two", "tp: NCCL 2.28.9"))
      << output("two");
  EXPECT_EQ(triax("strict", grid + "--set parallel.transport=nccl", on_gpus(2)), 2);
  EXPECT_TRUE(says("strict", "ranks 0 and 2 share a GPU; start one rank for each GPU")) << output("strict");
}

TEST_F(NcclJob, AnErrorOfNcclEndsAllRanksWithItsCause) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(
      triax("error",
            "--set parallel.tensor=4 --set model.num_attention_heads=4 --set training.steps=1000" + cuda,
            on_gpus(4, "TRIAX_EMULATED_NCCL_ERROR=2:40")),
      1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_TRUE(says("error", "rank 2: ")) << output("error");
  EXPECT_TRUE(says("error",
                   "in group 'tp': NCCL 2.28.9 says remote process exited or there was a network error: "
                   "emulated NCCL: a peer has closed its connection"))
      << output("error");
}

TEST_F(NcclJob, AKilledRankEndsTheJob) {
  EXPECT_LT(signalled("killed", "KILL", "--set parallel.data=4 --set training.steps=100000" + cuda), 30);
  EXPECT_TRUE(says("killed", "signal 9")) << output("killed");
}

TEST_F(NcclJob, AStoppedRankIsNamedByTheWatchdog) {
  EXPECT_LT(
      signalled("stopped", "STOP",
                "--set parallel.data=4 --set training.steps=100000 --set logging.watchdog_seconds=3" + cuda),
      60);
  EXPECT_TRUE(says("stopped", "the watchdog ends the job")) << output("stopped");
  EXPECT_TRUE(says("stopped", "rank 1 does not answer")) << output("stopped");
}

}  // namespace
}  // namespace triax::test
