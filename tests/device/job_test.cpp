// Whole jobs with training.device: cuda, without a GPU. On the foreign device (tests/device/foreign), which
// computes with the CPU's kernels in memory that the host can't touch, everything has the CPU's bits, so that
// whatever differs, or dies, is what the engine did with the device. On the emulated CUDA library
// (tests/emulated_cuda) the GPU's own kernels compute, within the bounds of two implementations.

#include <cmath>

#include "job_runs.h"

namespace triax::test {
namespace {

const std::string on_foreign = device_library("triax_cuda_foreign.so");
const std::string cuda = " --set training.device=cuda ";

class DeviceJob : public JobRuns {
 protected:
  DeviceJob()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 48, num_hidden_layers: 4, num_attention_heads: 12, intermediate_size: 96,
        max_position_embeddings: 16}
training: {steps: 4, global_batch_size: 8, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}], validation: [{path: corpus.txt}], validation_interval: 2, validation_batches: 1}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 2, decay_steps: 4}
parallel: {tensor: 1, pipeline: 1, data: 1}
checkpoint: {interval: 2}
logging: {tensorboard: false, gradient_noise_scale: 1, check_replicas: 1}
)") {}

  // The same run on the CPU and on the foreign device.
  void expect_same_bits(const std::string& options) {
    ASSERT_EQ(triax("cpu", options), 0) << output("cpu");
    ASSERT_EQ(triax("foreign", options + cuda, on_foreign), 0) << output("foreign");
    EXPECT_EQ(metrics("foreign"), metrics("cpu")) << options;
    EXPECT_EQ(metrics("cpu").size(), 4U);
    for (const int step : {2, 4}) EXPECT_EQ(tensors("foreign", step), tensors("cpu", step)) << options;
    // The same where the device runs beside the host.
    ASSERT_EQ(triax("async", options + cuda, "TRIAX_FOREIGN_ASYNC=1 " + on_foreign), 0) << output("async");
    EXPECT_EQ(metrics("async"), metrics("cpu")) << options;
    EXPECT_EQ(tensors("async", 4), tensors("cpu", 4)) << options;
  }
  // What metrics.jsonl tells of each step, but for times.
  nlohmann::json lines(const std::string& run) const {
    nlohmann::json list = nlohmann::json::array();
    std::ifstream in(dir_ / run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto all = nlohmann::json::parse(line);
      nlohmann::json kept;
      for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "tokens", "consumed_samples",
                              "validation_loss", "skipped"})
        if (all.contains(key)) kept[key] = all[key];
      EXPECT_GT(all["step_seconds"].get<double>(), 0);
      list.push_back(kept);
    }
    return list;
  }
  // A job with nothing to be done between most of its steps, so that they run ahead.
  static std::string ahead() {
    return "--set training.steps=9 --set lr_schedule.decay_steps=9 --set checkpoint.interval=100 "
           "--set logging.check_replicas=0 --set data.validation_interval=5 ";
  }
  // The same run on the CPU and on the foreign device beside the host; returns the exit status of both.
  int run_ahead(const std::string& options) {
    const int status = triax("cpu", ahead() + options);
    EXPECT_EQ(triax("async", ahead() + options + cuda, "TRIAX_FOREIGN_ASYNC=1 " + on_foreign), status)
        << output("async");
    EXPECT_EQ(lines("async"), lines("cpu")) << options;
    return status;
  }
  std::string log(const std::string& run) const {
    std::string text;
    for (const auto& entry : fs::recursive_directory_iterator(dir_ / run / "logs"))
      if (entry.is_regular_file()) text += read(fs::relative(entry.path(), dir_).string());
    return text;
  }
  int shell(const std::string& line) const {
    const int status = std::system(("cd " + dir_.string() + " && { " + line + "; }").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  static std::string program() { return std::string(TRIAX_BINARY_DIR) + "/triax "; }
  std::string read(const std::string& name) const {
    std::ifstream in(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(DeviceJob, OneRankHasTheCpusBits) {
  expect_same_bits("");
}

// The device and its threads are the library's, what they are given to do is the program's.
TEST_F(DeviceJob, HostThreadsHaveTheCpusBits) {
  expect_same_bits("--set training.threads=2");
}

TEST_F(DeviceJob, ThreadRanksHaveTheCpusBits) {
  expect_same_bits("--set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.data=2");
}

TEST_F(DeviceJob, SequenceParallelRecomputedInBf16HasTheCpusBits) {
  expect_same_bits(
      "--set parallel.tensor=2 --set parallel.data=4 --set parallel.sequence_parallel=true "
      "--set training.recompute=selective --set training.precision=bf16 --set parallel.zero_shard_ranks=2");
}

TEST_F(DeviceJob, PartitionedActivationsAndDropoutHaveTheCpusBits) {
  expect_same_bits(
      "--set parallel.tensor=2 --set parallel.pipeline=2 --set training.recompute=full "
      "--set training.partition_activations=true --set model.hidden_dropout=0.1 --set "
      "parallel.schedule=zb-h1 "
      "--set parallel.zero_stage=0 --set checkpoint.async=false");
}

TEST_F(DeviceJob, DeterministicRefusesAnAttentionThatIsNot) {
  const std::string attention = "TRIAX_CUDA_ATTENTION=cudnn ";
  EXPECT_EQ(triax("chance", "--set training.deterministic=true" + cuda, attention + on_foreign), 2);
  EXPECT_NE(
      output("chance").find("training.deterministic: true can't be kept with TRIAX_CUDA_ATTENTION=cudnn"),
      std::string::npos)
      << output("chance");
  EXPECT_EQ(triax("any", cuda, attention + on_foreign), 0) << output("any");
}

TEST_F(DeviceJob, ProcessesStageThroughTheHost) {
  if (!have_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const std::string options = "--set parallel.tensor=2 --set parallel.pipeline=2 ";
  ASSERT_EQ(triax("cpu", options), 0) << output("cpu");
  ASSERT_EQ(triax("foreign", options + cuda, on_foreign + mpirun + "-n 4 "), 0) << output("foreign");
  EXPECT_EQ(metrics("foreign"), metrics("cpu"));
  EXPECT_EQ(tensors("foreign", 4), tensors("cpu", 4));
}

TEST_F(DeviceJob, AJobThatRunsAheadHasTheCpusBits) {
  ASSERT_EQ(run_ahead("--set model.hidden_dropout=0.1"), 0) << output("cpu");
  EXPECT_EQ(lines("cpu").size(), 9U);
  EXPECT_EQ(tensors("async", 9), tensors("cpu", 9));
  EXPECT_NE(log("async").find("steps are launched as a CUDA graph from now on"), std::string::npos)
      << log("async");
  EXPECT_EQ(log("cpu").find("CUDA graph"), std::string::npos);
}

TEST_F(DeviceJob, ThreadRanksThatRunAheadHaveTheCpusBits) {
  ASSERT_EQ(
      run_ahead("--set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.data=2 "
                "--set logging.straggler_window=3 --set logging.trace=true --set logging.trace_steps=[4]"),
      0)
      << output("cpu");
  EXPECT_EQ(tensors("async", 9), tensors("cpu", 9));
  EXPECT_NE(log("async").find("steps are not captured as a CUDA graph: its 8 ranks' hosts"),
            std::string::npos)
      << log("async");
}

TEST_F(DeviceJob, StepsThatRunAheadAreSkippedWithTheSameReport) {
  ASSERT_EQ(run_ahead("--set parallel.data=2 --set training.on_nonfinite=skip "
                      "--set debug.nonfinite_gradient_at=[3,7,8]"),
            0)
      << output("cpu");
  EXPECT_EQ(tensors("async", 9), tensors("cpu", 9));
  EXPECT_EQ(lines("async")[6]["skipped"], true);
  for (const char* run : {"cpu", "async"})
    EXPECT_NE(output(run).find("step 7: the loss is "), std::string::npos) << output(run);
}

// The step after the one that stops the job has been enqueued: the state that is set aside is that before.
TEST_F(DeviceJob, AStepThatStopsTheJobIsFollowedByNoUpdate) {
  ASSERT_EQ(run_ahead("--set debug.nonfinite_gradient_at=[6]"), 1) << output("cpu");
  EXPECT_EQ(lines("async").size(), 5U);
  const auto state = [&](const std::string& run) {
    return manifest(dir_ / run / "stopped" / "step-00000005")["tensors"];
  };
  EXPECT_EQ(state("async"), state("cpu"));
}

TEST_F(DeviceJob, ARequestIsCarriedOutAfterTheStepThatIsUnderWay) {
  ASSERT_EQ(triax("whole",
                  "--set training.steps=120 --set lr_schedule.decay_steps=120 --set checkpoint.interval=1000 "
                  "--set data.validation_interval=1000 --set logging.check_replicas=1000"),
            0)
      << output("whole");
  const std::string options =
      "--set training.steps=120 --set lr_schedule.decay_steps=120 --set checkpoint.interval=1000 "
      "--set data.validation_interval=1000 --set logging.check_replicas=1000" +
      cuda;
  // SIGUSR1 as soon as some steps are done.
  const std::string kill_when_under_way =
      "(for i in $(seq 2000); do [ \"$(wc -l < stopped/metrics.jsonl 2>/dev/null || echo 0)\" -ge 5 ] && "
      "break; sleep 0.01; "
      "done; kill -USR1 $(cat pid)) & echo $$ > pid; exec ";
  const int status = shell(kill_when_under_way + "env TRIAX_FOREIGN_ASYNC=1 " + on_foreign + program() +
                           "train job.yaml --set output_dir=" + (dir_ / "stopped").string() + " " + options +
                           " > stopped.out 2>&1");
  ASSERT_EQ(status, 75) << read("stopped.out");
  const auto steps = static_cast<int64_t>(lines("stopped").size());
  EXPECT_LT(steps, 120);
  EXPECT_TRUE(fs::exists(checkpoint("stopped", steps))) << steps;
  ASSERT_EQ(triax("stopped", options, "TRIAX_FOREIGN_ASYNC=1 " + on_foreign), 0) << output("stopped");
  EXPECT_EQ(lines("stopped"), lines("whole"));
  EXPECT_EQ(tensors("stopped", 120), tensors("whole", 120));
}

TEST_F(DeviceJob, ResumesAcrossDevices) {
  ASSERT_EQ(triax("whole", ""), 0) << output("whole");
  const std::string two = "--set training.steps=2 --set lr_schedule.decay_steps=4 ";
  ASSERT_EQ(triax("there", two), 0) << output("there");
  ASSERT_EQ(triax("there", cuda, on_foreign), 0) << output("there");
  ASSERT_EQ(triax("back", two + cuda, on_foreign), 0) << output("back");
  ASSERT_EQ(triax("back", ""), 0) << output("back");
  for (const char* run : {"there", "back"}) {
    EXPECT_EQ(metrics(run), metrics("whole")) << run;
    EXPECT_EQ(tensors(run, 4), tensors("whole", 4)) << run;
  }
}

TEST_F(DeviceJob, StepsThatAreNotFiniteAreFoundAndSkipped) {
  const std::string options =
      "--set parallel.data=2 --set training.on_nonfinite=skip --set debug.nonfinite_gradient_at=[3] "
      "--set debug.dump_gradients_at=[2] --set debug.dump_batches_at=[2] ";
  ASSERT_EQ(triax("cpu", options), 0) << output("cpu");
  ASSERT_EQ(triax("foreign", options + cuda, on_foreign), 0) << output("foreign");
  EXPECT_EQ(tensors("foreign", 4), tensors("cpu", 4));
  const auto finding = [&](const std::string& run) {
    const std::string text = output(run);
    const size_t at = text.find("  first: ");
    return at == std::string::npos ? text : text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_NE(finding("cpu").find("first: "), std::string::npos) << output("cpu");
  EXPECT_EQ(finding("foreign"), finding("cpu"));
  EXPECT_EQ(read("foreign/gradients/step-00000002.h5").size(), read("cpu/gradients/step-00000002.h5").size());
  EXPECT_GT(read("cpu/gradients/step-00000002.h5").size(), 1000U);
}

TEST_F(DeviceJob, GenerateEvaluateAndVerifyRunOnADevice) {
  ASSERT_EQ(triax("run", ""), 0) << output("run");
  const std::string device = "env " + on_foreign, on = " --set training.device=cuda ";
  const std::string text = "generate run --prompt abc --tokens 8 --temperature 0 -q ";
  ASSERT_EQ(shell(program() + text + "> here.txt 2> errors"), 0) << read("errors");
  ASSERT_EQ(shell(device + program() + text + on + "> there.txt 2> errors"), 0) << read("errors");
  EXPECT_EQ(read("there.txt"), read("here.txt"));
  EXPECT_GE(read("here.txt").size(), 8U);
  const std::string losses = "evaluate run corpus.txt --windows 8 --json -q ";
  ASSERT_EQ(shell(program() + losses + "> here.json 2> errors"), 0) << read("errors");
  ASSERT_EQ(shell(device + program() + losses + on + "> there.json 2> errors"), 0) << read("errors");
  EXPECT_EQ(nlohmann::json::parse(read("there.json"))["total"]["loss"],
            nlohmann::json::parse(read("here.json"))["total"]["loss"]);
  EXPECT_EQ(shell(device + program() + "verify job.yaml --set parallel.tensor=2" + on + "> verify.txt 2>&1"),
            0)
      << read("verify.txt");
}

TEST_F(DeviceJob, WithoutALibraryOrAGpuItIsRefused) {
  EXPECT_EQ(triax("none", cuda, "TRIAX_CUDA_LIBRARY=/nowhere/triax_cuda.so "), 2);
  EXPECT_NE(output("none").find("/nowhere/triax_cuda.so can't be opened"), std::string::npos)
      << output("none");
  EXPECT_NE(output("none").find("set training.device to cpu"), std::string::npos) << output("none");
  EXPECT_FALSE(fs::exists(dir_ / "none"));
  // A plan asks no device.
  EXPECT_EQ(shell(program() + "plan job.yaml --ranks 1" + cuda + "> plan.txt 2>&1"), 0) << read("plan.txt");
}

}  // namespace
}  // namespace triax::test
