// Whole jobs through the program: threads against mpirun, resuming on the same and on other grids, a rank
// that is killed.
#include <chrono>

#include "job_runs.h"

namespace triax::test {
namespace {

class JobTest : public JobRuns {
 protected:
  JobTest()
      : JobRuns(R"(
model: {vocab_size: 257, hidden_size: 48, num_hidden_layers: 4, num_attention_heads: 12, intermediate_size: 96,
        max_position_embeddings: 16}
training: {steps: 6, global_batch_size: 8, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {warmup_steps: 2, decay_steps: 6}
parallel: {tensor: 2, pipeline: 2, data: 2}
checkpoint: {interval: 1000, save_initial: true}
logging: {tensorboard: false}
)") {}
};

TEST_F(JobTest, StoppedAndResumedOnTheSameGridIsBitIdentical) {
  ASSERT_EQ(triax("whole", ""), 0) << output("whole");
  ASSERT_EQ(triax("parts", "--set training.steps=2"), 0) << output("parts");
  ASSERT_EQ(triax("parts", ""), 0) << output("parts");
  EXPECT_EQ(metrics("parts"), metrics("whole"));
  EXPECT_EQ(metrics("parts").size(), 6U);
  EXPECT_EQ(tensors("parts", 6), tensors("whole", 6));
}

TEST_F(JobTest, ResumedOnOtherGridsTheStateIsBitIdenticalAndLossesGoOn) {
  ASSERT_EQ(triax("whole", ""), 0) << output("whole");
  ASSERT_EQ(triax("first", "--set training.steps=3"), 0) << output("first");
  const char* const grids[] = {
      "--ranks 1 --set parallel.tensor=1 --set parallel.pipeline=1 --set parallel.data=1",
      "--ranks 12 --set parallel.tensor=3 --set parallel.pipeline=4 --set parallel.data=1 --set "
      "parallel.zero_stage=0",
      "--ranks 8 --set parallel.tensor=1 --set parallel.pipeline=1 --set parallel.data=8",
      "--ranks 8 --set parallel.tensor=2 --set parallel.pipeline=1 --set parallel.data=4 --set "
      "parallel.zero_shard_ranks=2"};
  int n = 0;
  for (const char* grid : grids) {
    const std::string out = "other" + std::to_string(n++);
    const std::string from =
        " --set checkpoint.resume=" + (dir_ / "first/checkpoints/step-00000003").string() + " ";
    ASSERT_EQ(triax(out, grid + from), 0) << output(out);
    EXPECT_EQ(tensors(out, 3), tensors("first", 3)) << grid;
    const auto whole = metrics("whole"), resumed = metrics(out);
    for (int step = 4; step <= 6; ++step)
      EXPECT_NEAR(resumed.at(step).first / whole.at(step).first, 1.0, 1e-5) << grid << ", step " << step;
  }
}

// Checkpoints hold fp32 masters: state and moments pass from one precision to the other as they are.
TEST_F(JobTest, ResumedInAnotherPrecision) {
  const std::string bf16 = "--set training.precision=bf16 ";
  ASSERT_EQ(triax("whole", bf16), 0) << output("whole");
  ASSERT_EQ(triax("half", bf16 + "--set training.steps=3"), 0) << output("half");
  ASSERT_EQ(triax("again", bf16 + "--set training.steps=3"), 0) << output("again");
  ASSERT_EQ(triax("again", bf16), 0) << output("again");
  EXPECT_EQ(metrics("again"), metrics("whole"));
  EXPECT_EQ(tensors("again", 6), tensors("whole", 6));
  const std::string from =
      " --set checkpoint.resume=" + (dir_ / "half/checkpoints/step-00000003").string() + " ";
  EXPECT_EQ(triax("full", from), 2);
  EXPECT_NE(output("full").find("training.precision"), std::string::npos) << output("full");
  ASSERT_EQ(triax("full", from + "--accept-changes"), 0) << output("full");
  EXPECT_EQ(tensors("full", 3), tensors("half", 3));
  for (int step = 4; step <= 6; ++step)
    EXPECT_NEAR(metrics("full").at(step).first / metrics("whole").at(step).first, 1.0, 0.01) << step;
}

TEST_F(JobTest, NoUsableCheckpointIsNoReasonToStartAnew) {
  ASSERT_EQ(triax("run", ""), 0) << output("run");
  const auto before = metrics("run");
  for (const auto& folder : fs::directory_iterator(dir_ / "run" / "checkpoints"))
    if (folder.is_directory()) fs::resize_file(folder.path() / "manifest.json", 100);
  EXPECT_EQ(triax("run", "--set training.steps=100"), 1);
  EXPECT_NE(output("run").find("none of the checkpoints in"), std::string::npos) << output("run");
  EXPECT_NE(output("run").find("checkpoint.resume: never"), std::string::npos);
  EXPECT_EQ(metrics("run"), before);
}

TEST_F(JobTest, RefusedChangesLeaveTheRunAsItWas) {
  ASSERT_EQ(triax("run", "--set training.steps=2"), 0);
  const auto before = fs::last_write_time(dir_ / "run/job.yaml");
  EXPECT_EQ(triax("run", "--set optimizer.lr=0.5"), 2);
  EXPECT_NE(output("run").find("--accept-changes"), std::string::npos) << output("run");
  EXPECT_EQ(triax("run", "--set model.hidden_size=24"), 2);
  EXPECT_EQ(fs::last_write_time(dir_ / "run/job.yaml"), before);
  EXPECT_EQ(metrics("run").size(), 2U);
  EXPECT_EQ(triax("run", "--accept-changes --set optimizer.lr=2e-3"), 0) << output("run");
}

TEST_F(JobTest, GoingBackToAnOlderCheckpointLeavesTheLaterOnesAside) {
  ASSERT_EQ(triax("run", "--set checkpoint.interval=1"), 0) << output("run");
  ASSERT_EQ(triax("run",
                  "--set training.steps=5 --accept-changes --set optimizer.lr=0.01 --set "
                  "checkpoint.resume=run/checkpoints/step-00000004"),
            0)
      << output("run");
  EXPECT_NE(output("run").find("set aside as"), std::string::npos) << output("run");
  EXPECT_TRUE(fs::exists(dir_ / "run/checkpoints/abandoned-step-00000006"));
  EXPECT_EQ(metrics("run").size(), 5U);
  const auto fifth = tensors("run", 5);
  // What auto finds is the new course, not the step 6 of the old one.
  ASSERT_EQ(triax("run", "--set training.steps=6 --set optimizer.lr=0.01"), 0) << output("run");
  EXPECT_NE(output("run").find("step-00000005: step 5"), std::string::npos) << output("run");
  EXPECT_EQ(tensors("run", 5), fifth);
  EXPECT_EQ(metrics("run").size(), 6U);
}

TEST_F(JobTest, AnotherRunsWeightsStartARunThatTheSameCommandContinues) {
  ASSERT_EQ(triax("base", "--set training.steps=2"), 0) << output("base");
  const std::string command =
      "--set checkpoint.resume=base/checkpoints/step-00000002 --set checkpoint.load=weights --set seed=7 "
      "--set optimizer.lr=0.002 --set training.steps=";
  ASSERT_EQ(triax("tuned", command + "3"), 0) << output("tuned");
  EXPECT_NE(output("tuned").find("started from the weights of"), std::string::npos) << output("tuned");
  // The weights are those of the base, the rest begins anew.
  const auto base = tensors("base", 2), start = tensors("tuned", 0);
  ASSERT_EQ(base.size(), start.size());
  for (size_t i = 0; i < base.size(); ++i) {
    if (base[i]["kind"] == "weight") {
      EXPECT_EQ(start[i]["hash"], base[i]["hash"]) << base[i]["path"];
    } else if (base[i]["path"].get<std::string>().find("k.bias") == std::string::npos) {
      EXPECT_NE(start[i]["hash"], base[i]["hash"]) << base[i]["path"];
    }
  }
  EXPECT_EQ(metrics("tuned").begin()->first, 1);
  ASSERT_EQ(triax("tuned", command + "5"), 0) << output("tuned");
  EXPECT_NE(output("tuned").find("it goes on with its own checkpoints"), std::string::npos)
      << output("tuned");
  ASSERT_EQ(triax("whole", command + "5"), 0) << output("whole");
  EXPECT_EQ(metrics("tuned"), metrics("whole"));
  EXPECT_EQ(tensors("tuned", 5), tensors("whole", 5));
}

// A grid of one rank.
const char* const alone =
    "--ranks 1 --set parallel.tensor=1 --set parallel.pipeline=1 --set parallel.data=1 --set training.steps=";

TEST_F(JobTest, ARunGoesOnWithoutTheCheckpointThatItBeganWith) {
  ASSERT_EQ(triax("base", alone + std::string("2")), 0) << output("base");
  const std::string command =
      " --set checkpoint.resume=base/checkpoints/step-00000002 --set checkpoint.load=weights";
  ASSERT_EQ(triax("tuned", alone + ("2" + command)), 0) << output("tuned");
  fs::remove_all(dir_ / "base");
  ASSERT_EQ(triax("tuned", alone + ("4" + command)), 0) << output("tuned");
  EXPECT_NE(output("tuned").find("it goes on with its own checkpoints"), std::string::npos)
      << output("tuned");
  EXPECT_EQ(metrics("tuned").size(), 4U);
  // Another run did not begin there, nor this one elsewhere.
  EXPECT_EQ(triax("other", alone + ("4" + command)), 2);
  EXPECT_NE(output("other").find("no such folder"), std::string::npos) << output("other");
  EXPECT_EQ(triax("tuned", alone + std::string("5 --set checkpoint.resume=base/checkpoints/step-00000001")),
            2);
}

TEST_F(JobTest, ARunDoesNotBeginAnewOverItsOwnCheckpoint) {
  ASSERT_EQ(triax("run", alone + std::string("2")), 0) << output("run");
  const std::string own = " --set checkpoint.resume=run/checkpoints/step-00000002";
  EXPECT_EQ(triax("run", alone + ("4" + own) + " --set checkpoint.load=weights"), 2);
  EXPECT_NE(output("run").find("give this run an output_dir of its own"), std::string::npos) << output("run");
  EXPECT_TRUE(fs::exists(checkpoint("run", 2)));
  EXPECT_EQ(triax("run", alone + ("4" + own)), 0) << output("run");  // whole: going on
}

TEST_F(JobTest, ARunsFolderIsNoCheckpointButNamesThem) {
  ASSERT_EQ(triax("run", alone + std::string("2")), 0) << output("run");
  for (const char* folder : {"run", "run/checkpoints"}) {
    EXPECT_EQ(triax("next", alone + std::string("4 --set checkpoint.resume=") + folder), 2) << folder;
    for (const int64_t step : {0, 2})
      EXPECT_NE(output("next").find(checkpoint("run", step).string()), std::string::npos) << output("next");
  }
}

TEST_F(JobTest, ALinkedCheckpointOfTheRunIsItsOwn) {
  ASSERT_EQ(triax("run", alone + std::string("2")), 0) << output("run");
  fs::create_directory_symlink(dir_ / "run/checkpoints", dir_ / "folder");
  fs::create_directory_symlink(checkpoint("run", 2), dir_ / "step");
  for (const char* link : {"folder/step-00000002", "step"}) {
    EXPECT_EQ(triax("run", alone + std::string("1000000 --set training.stop_after_minutes=0.001 ") +
                               "--set checkpoint.resume=" + link),
              75)
        << output("run");
    EXPECT_NE(output("run").find("checkpoint.resume: auto continues"), std::string::npos) << output("run");
  }
}

TEST_F(JobTest, StoppedAtAnyStepAndResumedIsBitIdenticalInTheBackgroundOrNot) {
  ASSERT_EQ(triax("whole", ""), 0) << output("whole");
  for (const char* async : {"true", "false"}) {
    const std::string out = std::string("stops-") + async;
    for (int steps = 1; steps <= 6; ++steps)
      ASSERT_EQ(triax(out, "--set checkpoint.interval=1 --set checkpoint.async=" + std::string(async) +
                               " --set training.steps=" + std::to_string(steps)),
                0)
          << output(out);
    EXPECT_EQ(metrics(out), metrics("whole")) << async;
    EXPECT_EQ(tensors(out, 6), tensors("whole", 6)) << async;
  }
}

TEST_F(JobTest, MpirunAndThreadsGiveTheSameNumbers) {
  if (!have_mpirun()) GTEST_SKIP() << "there is no mpirun here";
  ASSERT_EQ(triax("threads", ""), 0) << output("threads");
  ASSERT_EQ(triax("mpi", "", std::string(mpirun) + "-n 8 "), 0) << output("mpi");
  EXPECT_EQ(metrics("mpi"), metrics("threads"));
  EXPECT_EQ(tensors("mpi", 6), tensors("threads", 6));
}

TEST_F(JobTest, AKilledRankEndsTheJobWithinSeconds) {
  if (!have_mpirun()) GTEST_SKIP() << "there is no mpirun here";
  // Rank 3 dies while the others train on.
  const std::string victim =
      "sh -c '[ \"$OMPI_COMM_WORLD_RANK\" != 3 ] || (sleep 3; kill -9 $$) & exec \"$@\"' sh ";
  const auto start = std::chrono::steady_clock::now();
  const int status = triax("killed", "--set training.steps=1000000", std::string(mpirun) + "-n 8 " + victim);
  EXPECT_NE(status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_NE(output("killed").find("signal 9"), std::string::npos) << output("killed");
}

class FullJobTest : public JobTest {};

TEST_F(FullJobTest, ThirtyTwoRanksUnderMpirun) {
  if (!have_mpirun()) GTEST_SKIP() << "there is no mpirun here";
  const std::string grid = "--set parallel.tensor=4 --set parallel.pipeline=4 ";
  ASSERT_EQ(triax("threads", grid + "--ranks 32"), 0) << output("threads");
  ASSERT_EQ(triax("mpi", grid, std::string(mpirun) + "-n 32 "), 0) << output("mpi");
  EXPECT_EQ(metrics("mpi"), metrics("threads"));
  EXPECT_EQ(tensors("mpi", 6), tensors("threads", 6));
}

}  // namespace
}  // namespace triax::test
