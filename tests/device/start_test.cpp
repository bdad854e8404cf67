// How jobs with training.device: cuda begin, on the emulated CUDA library: which GPU the ranks take, what is
// refused before anything is computed (exit status 2), and what the environment chooses.

#include <cmath>

#include "job_runs.h"

namespace triax::test {
namespace {

class GpuStart : public JobRuns {
 protected:
  GpuStart()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 48,
        max_position_embeddings: 16}
training: {device: cuda, steps: 1, global_batch_size: 2, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 1, decay_steps: 1}
parallel: {tensor: 1, pipeline: 1, data: 1}
logging: {tensorboard: false}
)") {}

  static std::string emulated(const std::string& more = "") {
    return device_library("triax_cuda_emulated.so") + more + " ";
  }
  bool says(const std::string& out, const std::string& words) const {
    return output(out).find(words) != std::string::npos;
  }
  std::string log_of(const std::string& out, int rank) const {
    std::ifstream in(dir_ / out / "logs" / ("rank-0000" + std::to_string(rank) + ".log"));
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// The job ends with status 2 and all of `words`.
  void expect_refused(const std::string& options, const std::string& environment,
                      const std::vector<std::string>& words) {
    EXPECT_EQ(triax("refused", options, environment), 2) << output("refused");
    for (const std::string& w : words)
      EXPECT_TRUE(says("refused", w)) << w << " is not in\n" << output("refused");
    fs::remove_all(dir_ / "refused");
  }
  /// The exit status of `triax plan` of the job.
  int plan(const std::string& options) const {
    const int status = std::system(("cd " + dir_.string() + " && " + TRIAX_BINARY_DIR +
                                    "/triax plan job.yaml " + options + " >plan.out 2>&1")
                                       .c_str());
    return WEXITSTATUS(status);
  }
};

// They read each other's memory, which without peer access lies on one GPU.
TEST_F(GpuStart, ThreadRanksTakeOneGpuOfTwo) {
  ASSERT_EQ(triax("threads", "--set parallel.data=2", emulated("TRIAX_EMULATED_GPUS=2")), 0)
      << output("threads");
  for (const int rank : {0, 1})
    EXPECT_NE(log_of("threads", rank)
                  .find("computes on GPU 0 of the 2 that can be seen, which all ranks have that "
                        "are threads of this process"),
              std::string::npos)
        << log_of("threads", rank);
}

TEST_F(GpuStart, ProcessesTakeOneGpuEach) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const std::string nccl =
      std::string("TRIAX_NCCL_LIBRARY=") + TRIAX_BINARY_DIR + "/lib/libnccl_emulated.so ";
  ASSERT_EQ(triax("processes", "--set parallel.data=2",
                  emulated("TRIAX_EMULATED_GPUS=2") + nccl + mpirun + "-n 2 "),
            0)
      << output("processes");
  EXPECT_NE(log_of("processes", 1).find("computes on GPU 1 of the 2 that can be seen\n"), std::string::npos)
      << log_of("processes", 1);
}

TEST_F(GpuStart, AnOldDriverIsToldToBeUpdated) {
  expect_refused(
      "", emulated("TRIAX_EMULATED_DRIVER=12040"),
      {"The NVIDIA driver is too old: it knows CUDA up to 12.4, and this program needs CUDA 13.0 or "
       "newer. Update the driver"});
  EXPECT_FALSE(says("refused", "CUDA_VISIBLE_DEVICES"));
}

TEST_F(GpuStart, ChoicesThatAreNoneAreRefusedAtTheStart) {
  expect_refused("", emulated("TRIAX_CUDA_ATTENTION=flash"),
                 {"TRIAX_CUDA_ATTENTION is 'flash'; it can be own, cudnn or cudnn-deterministic"});
  expect_refused("", emulated("TRIAX_CUDA_ATTENTION=cudnn"),
                 {"was built without cuDNN's headers; TRIAX_CUDA_ATTENTION can be own"});
  expect_refused("", emulated("TRIAX_CUDA_GELU=together"),
                 {"TRIAX_CUDA_GELU is 'together'; it can be fused"});
  expect_refused("", emulated("TRIAX_CUDA_TF32=yes"), {"TRIAX_CUDA_TF32 is 'yes'; it can be 0"});
  expect_refused("--set training.cuda_graph=on", emulated("CUDA_LAUNCH_BLOCKING=1"),
                 {"training.cuda_graph: on can't be kept with CUDA_LAUNCH_BLOCKING=1 in the environment"});
}

TEST_F(GpuStart, Tf32IsAskedForInTheEnvironmentAndSaid) {
  ASSERT_EQ(triax("full", "", emulated()), 0) << output("full");
  ASSERT_EQ(triax("tf32", "", emulated("TRIAX_CUDA_TF32=1")), 0) << output("tf32");
  EXPECT_TRUE(says("tf32", "products of fp32 in TF32 (TRIAX_CUDA_TF32)")) << output("tf32");
  EXPECT_FALSE(says("full", "TF32")) << output("full");
  const double full = metrics("full").at(1).first, rounded = metrics("tf32").at(1).first;
  EXPECT_NE(full, rounded);
  EXPECT_LT(std::abs(rounded / full - 1), 1e-3);
}

// What the kernels can't take is told by the plan, and on a CPU nobody is told.
TEST_F(GpuStart, LimitsOfTheKernelsAreTheJobs) {
  const struct {
    std::string options;
    std::vector<std::string> words;
  } cases[] = {
      {"--set model.hidden_size=1024 --set model.num_attention_heads=2",
       {"model.num_attention_heads: 2 of hidden_size 1024 have 512 elements each", "takes up to 256",
        "num_attention_heads can be 4, 8, 16"}},
      {"--set model.hidden_size=16640 --set model.num_attention_heads=130",
       {"model.hidden_size: 16640 is more than the GPU's norms take, 16384"}},
      {"--set model.num_attention_heads=16 --set training.sequence_length=4096 --set "
       "model.max_position_embeddings=4096 --set training.micro_batch_size=256 --set "
       "training.global_batch_size=256",
       {"training.micro_batch_size: 256 sequences of 4096 tokens with 16 heads",
        "micro_batch_size can be 1 to 128"}},
      {"--set model.vocab_size=5000000",
       {"model.vocab_size: 5000000 over parallel.tensor 1 is more than the 4194304 rows",
        "tensor 2 or more"}},
  };
  for (const auto& c : cases) {
    expect_refused(c.options, emulated(), c.words);
    EXPECT_EQ(plan(c.options), 2) << c.options;
    EXPECT_EQ(plan(c.options + " --set training.device=cpu"), 0) << c.options;
  }
  expect_refused("--set parallel.data=65 --set training.global_batch_size=65", emulated(),
                 {"65 ranks that are threads of one process; at most 64 can share a GPU so"});
}

}  // namespace
}  // namespace triax::test
