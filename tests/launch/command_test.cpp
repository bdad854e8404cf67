// The program as users call it: exit statuses, messages, signals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace triax {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Result {
  int status = -1;
  std::string out, err;
};

class CommandTest : public ::testing::Test {
 protected:
  CommandTest() : dir_(fs::temp_directory_path() / ("triax-command-" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    std::ofstream(dir_ / "corpus.txt") << std::string(4000, 'a') + std::string(4000, 'b');
    std::ofstream(dir_ / "job.yaml") << R"(
model: {vocab_size: 256, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 32,
        max_position_embeddings: 16}
output_dir: run
training: {steps: 4, global_batch_size: 4, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
lr_schedule: {decay_steps: 100}
checkpoint: {interval: 1000}
)";
  }
  ~CommandTest() override { fs::remove_all(dir_); }

  pid_t start(const std::vector<std::string>& arguments) {
    const std::string program = std::string(TRIAX_BINARY_DIR) + "/triax";
    const pid_t child = fork();
    if (child != 0) return child;
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    const int out = open((dir_ / "out").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600),
              err = open((dir_ / "err").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(out, 1);
    dup2(err, 2);
    if (chdir(dir_.c_str()) == 0) execv(program.c_str(), argv.data());
    _exit(127);
  }
  Result finish(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), read(dir_ / "out"),
            read(dir_ / "err")};
  }
  Result run(const std::vector<std::string>& arguments) { return finish(start(arguments)); }
  // Steps written so far.
  int steps() const {
    const std::string text = read(dir_ / "run" / "metrics.jsonl");
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  void wait_for_steps(int count) {
    for (int i = 0; i < 6000 && steps() < count; ++i) std::this_thread::sleep_for(10ms);
  }

  fs::path dir_;
};

TEST_F(CommandTest, HelpHasAnExampleEverywhere) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"train"},
                                             {"plan"},
                                             {"verify"},
                                             {"checkpoint", "ls"},
                                             {"checkpoint", "inspect"},
                                             {"checkpoint", "verify"},
                                             {"checkpoint", "diff"},
                                             {"checkpoint", "prune"},
                                             {"checkpoint", "merge"},
                                             {"launch"},
                                             {"report"},
                                             {"generate"},
                                             {"evaluate"},
                                             {"bench", "step"},
                                             {"bench", "kernels"},
                                             {"bench", "checkpoint"},
                                             {"schema"},
                                             {"version"}}) {
    auto arguments = command;
    arguments.push_back("--help");
    const Result r = run(arguments);
    EXPECT_EQ(r.status, 0) << command[0];
    EXPECT_NE(r.out.find("Example:\n  triax " + command[0]), std::string::npos) << r.out;
  }
  EXPECT_EQ(run({"--help"}).status, 0);
}

TEST_F(CommandTest, ATracedStepIsDrawnBesideThePlan) {
  const Result train = run({"train", "job.yaml", "--set", "logging.trace=true"});
  EXPECT_EQ(train.status, 0) << train.err;
  EXPECT_TRUE(fs::exists(dir_ / "run/traces/step-00000002.json"));
  const Result plan = run({"plan", "job.yaml", "--svg", "picture.svg", "--trace", "run"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_NE(plan.out.find("step 2 measured: bubble "), std::string::npos) << plan.out;
  const std::string picture = read(dir_ / "picture.svg");
  EXPECT_NE(picture.find("planned, with the measured mean times: 1f1b, 2 stages, 4 micro-batches"),
            std::string::npos);
  EXPECT_NE(picture.find("measured, step 2: 1f1b"), std::string::npos);
  const Result other =
      run({"plan", "job.yaml", "--set", "parallel.schedule=gpipe", "--svg", "picture.svg", "--trace", "run"});
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("measured was 1f1b"), std::string::npos) << other.err;
}

TEST_F(CommandTest, BadUsageExitsWith2) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"tarin"},
                                             {"train"},
                                             {"train", "job.yaml", "--rank", "2"},
                                             {"train", "job.yaml", "--ranks", "0"},
                                             {"train", "job.yaml", "--ranks", "two"},
                                             {"train", "missing.yaml"},
                                             {"plan"},
                                             {"plan", "--schedule", "gpipe"},
                                             {"plan", "job.yaml", "--schedule", "gpipe"},
                                             {"plan", "job.yaml", "--svg", "a.svg", "--trace", "nowhere"},
                                             {"checkpoint"},
                                             {"checkpoint", "ls", "nowhere"},
                                             {"report", "nowhere"}}) {
    const Result r = run(arguments);
    EXPECT_EQ(r.status, 2) << (arguments.empty() ? "" : arguments[0]) << r.err;
    EXPECT_EQ(r.err.rfind("triax: error: ", 0), 0u) << r.err;
  }
}

TEST_F(CommandTest, ABadJobIsRefusedAtOnceAndWhole) {
  const auto start = std::chrono::steady_clock::now();
  const Result r = run({"train", "job.yaml", "--set", "parallel.tensor=8", "--set", "training.stpes=3"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(
      r.err.find("model.num_attention_heads: 2 is not divisible by parallel.tensor: 8; tensor can be 1, 2"),
      std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find("training.stpes: unknown key; the nearest known key is training.steps"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(dir_ / "run"));
}

TEST_F(CommandTest, VersionAndSchema) {
  const Result version = run({"version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.rfind("triax ", 0), 0u);
  const Result schema = run({"schema"});
  EXPECT_EQ(schema.status, 0);
  EXPECT_EQ(nlohmann::json::parse(schema.out)["properties"]["model"]["properties"]["hidden_size"]["type"],
            "integer");
}

TEST_F(CommandTest, PlanGivesTheDerivedValues) {
  const Result r = run({"plan", "job.yaml", "--ranks", "8", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto plan = nlohmann::json::parse(r.out);
  EXPECT_EQ(plan["ranks"], 8);
  EXPECT_EQ(plan["config"]["parallel"]["data"], 2);
  EXPECT_EQ(plan["micro_batches"], 2);
  EXPECT_EQ(plan["stages"].size(), 2u);
  EXPECT_GT(plan["peak_bytes"], 0);
  EXPECT_FALSE(fs::exists(dir_ / "run"));
  EXPECT_EQ(run({"plan", "job.yaml", "--ranks", "8"}).status, 0);
}

// A misspelt word comes before what is missing because of it.
TEST_F(CommandTest, UnknownWordsAreNamedFirst) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "triax: no command is given; the commands are init, train"},
      {{"trian", "job.yaml", "--ranks", "2"}, "triax: trian: unknown command; the nearest is train\n"},
      {{"frobnicate"}, "triax: frobnicate: unknown command; the commands are init, train"},
      {{"--frob", "train", "job.yaml"}, "triax: --frob: unknown option; the options are"},
      {{"checkpoint"}, "triax checkpoint: no command is given; the commands are ls, inspect"},
      {{"checkpoint", "exprt", "a", "b"},
       "triax checkpoint: exprt: unknown command; the nearest is export\n"},
      {{"checkpoint", "exprt", "a", "--format", "hf"}, "exprt: unknown command"},
      {{"checkpoint", "x", "a", "b"}, "triax checkpoint: x: unknown command; the commands are ls, inspect"},
      {{"generate", "run", "--promt", "x"},
       "triax generate: --promt: unknown option; the nearest is --prompt\n"},
      {{"generate", "--promt=x"}, "triax generate: --promt: unknown option; the nearest is --prompt\n"},
      {{"generate", "--promt", "x", "--ranks", "0"}, "--promt: unknown option"},
      {{"train", "--rank", "2"}, "triax train: --rank: unknown option; the nearest is --ranks\n"},
      {{"report", "run", "more"},
       "triax report: more: an argument too many; usage: triax report [OPTIONS] RUN\n"},
      {{"generate", "run"}, "--prompt"},
      {{"train"}, "JOB.yaml is required"}};
  for (const auto& [arguments, expected] : cases) {
    const Result r = run(arguments);
    EXPECT_EQ(r.status, 2) << expected;
    EXPECT_NE(r.err.find(expected), std::string::npos) << r.err;
  }
}

TEST_F(CommandTest, PlanSaysWhatFits) {
  std::ofstream(dir_ / "cluster.yaml") << "ranks_per_node: 8\n";
  const Result fits = run({"plan", "job.yaml", "--ranks", "8", "--device", "1", "--json"});
  ASSERT_EQ(fits.status, 0) << fits.err;
  const auto device = nlohmann::json::parse(fits.out)["device"];
  EXPECT_EQ(device["fits"], true);
  EXPECT_EQ(device["largest_micro_batch_size"], 2);
  const Result tight = run({"plan", "job.yaml", "--ranks", "8", "--device", "0.000001"});
  EXPECT_EQ(tight.status, 0) << tight.err;
  EXPECT_NE(tight.out.find("do NOT fit"), std::string::npos) << tight.out;
  EXPECT_EQ(run({"plan", "job.yaml", "--device", "h300"}).status, 2);
  EXPECT_EQ(run({"plan", "job.yaml", "--largest"}).status, 2);

  const Result search =
      run({"plan", "job.yaml", "--ranks", "4", "--cluster", "cluster.yaml", "--search", "--json"});
  ASSERT_EQ(search.status, 0) << search.err;
  EXPECT_GE(nlohmann::json::parse(search.out)["grids"].size(), 4u);
  EXPECT_EQ(run({"plan", "job.yaml", "--search"}).status, 2);
  EXPECT_EQ(run({"plan", "job.yaml", "--ranks", "4", "--cluster", "missing.yaml"}).status, 2);
}

// What needs the least memory tells what to change.
TEST_F(CommandTest, ASearchInWhichNothingFitsListsWhatNeedsTheLeast) {
  std::ofstream(dir_ / "small.yaml") << "ranks_per_node: 8\nmemory: 0.00001\n";
  const Result r = run({"plan", "job.yaml", "--ranks", "4", "--cluster", "small.yaml", "--search", "--set",
                        "parallel.sequence_parallel=true"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("  none fits\nneed more memory than there is, the least first\n"), std::string::npos)
      << r.out;
  const Result largest = run({"plan", "job.yaml", "--device", "0.000001", "--largest"});
  EXPECT_EQ(largest.status, 0) << largest.err;
  EXPECT_NE(largest.out.find("no model of this family fits"), std::string::npos) << largest.out;
  const Result json = run({"plan", "job.yaml", "--device", "0.000001", "--largest", "--json"});
  EXPECT_TRUE(nlohmann::json::parse(json.out).at("largest_model").is_null());
}

TEST_F(CommandTest, PlanRefusesWhatItWouldIgnore) {
  std::ofstream(dir_ / "cluster.yaml") << "ranks_per_node: 8\n";
  const std::vector<std::string> search{"plan", "job.yaml", "--ranks", "4", "--search"},
      job{"plan", "job.yaml"},
      schedule{"plan", "--schedule", "gpipe", "--stages", "2", "--micro-batches", "4"};
  const auto refused = [&](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    ASSERT_EQ(run(arguments).status, 0) << more[0];
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result r = run(arguments);
    EXPECT_EQ(r.status, 2) << more[0] << r.out;
    EXPECT_NE(r.err.find(more[0] + ": "), std::string::npos) << r.err;
  };
  refused(search, {"--device", "h100"});
  refused(search, {"--largest"});
  refused(search, {"--svg", "a.svg"});
  refused(search, {"--times", "1,1,1"});
  for (const char* option : {"--stages", "--micro-batches", "--virtual-stages"}) refused(job, {option, "1"});
  refused(schedule, {"--ranks", "4"});
  refused(schedule, {"--set", "name=x"});
  refused(schedule, {"--device", "h100"});
  refused(schedule, {"--cluster", "cluster.yaml"});
  refused(schedule, {"--search"});
  refused(schedule, {"--largest"});
}

// 1,024 ranks with tensor 16 are 64 data ranks; a node of 8 can't hold a tensor group of 16. 256 with tensor
// 8 are 32.
TEST_F(CommandTest, PlanOfManyRanksKeepsTensorGroupsWithinNodes) {
  std::ofstream(dir_ / "cluster.yaml") << "ranks_per_node: 8\n";
  std::ofstream(dir_ / "wide.yaml") << R"(
model: {vocab_size: 256, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 16, intermediate_size: 256,
        max_position_embeddings: 16}
training: {steps: 4, global_batch_size: 64, micro_batch_size: 1, sequence_length: 16}
data: {train: [{path: corpus.txt}]}
)";
  const std::vector<std::string> ask{"plan",
                                     "wide.yaml",
                                     "--ranks",
                                     "1024",
                                     "--cluster",
                                     "cluster.yaml",
                                     "--json",
                                     "--set",
                                     "parallel.pipeline=1",
                                     "--set",
                                     "parallel.tensor=16"};
  const Result refused = run(ask);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("tensor can be 1, 2, 4, 8, or set parallel.allow_tensor_across_nodes"),
            std::string::npos)
      << refused.err;
  auto allowed = ask;
  allowed.insert(allowed.end(), {"--set", "parallel.allow_tensor_across_nodes=true"});
  const Result wide = run(allowed);
  ASSERT_EQ(wide.status, 0) << wide.err;
  EXPECT_EQ(nlohmann::json::parse(wide.out)["grid"]["data"], 64);
  const Result eight = run({"plan", "wide.yaml", "--ranks", "256", "--cluster", "cluster.yaml", "--json",
                            "--set", "parallel.pipeline=1", "--set", "parallel.tensor=8"});
  ASSERT_EQ(eight.status, 0) << eight.err;
  EXPECT_EQ(nlohmann::json::parse(eight.out)["grid"]["data"], 32);
}

TEST_F(CommandTest, VerifyComparesTheGridWithOneRank) {
  const Result r = run({"verify", "job.yaml", "--ranks", "8"});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("verify: the grid computes what one rank computes"), std::string::npos) << r.out;
  EXPECT_FALSE(fs::exists(dir_ / "run"));
  EXPECT_EQ(run({"verify", "job.yaml", "--ranks", "3"}).status, 2);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);  // as mpirun tells
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const Result launched = run({"verify", "job.yaml"});
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(launched.status, 2);
  EXPECT_NE(launched.err.find("start it without mpirun or srun"), std::string::npos) << launched.err;
}

TEST_F(CommandTest, AJobRunsAndThenHasNothingLeftToDo) {
  const Result r = run({"train", "job.yaml", "--ranks", "4"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(steps(), 4);
  EXPECT_TRUE(fs::exists(dir_ / "run" / "job.yaml"));
  EXPECT_TRUE(fs::exists(dir_ / "run" / "logs" / "rank-00003.log"));
  EXPECT_NE(r.out.find("planned and measured on rank 0, 4 steps"), std::string::npos) << r.out;
  const Result again = run({"train", "job.yaml", "--ranks", "4"});
  EXPECT_EQ(again.status, 0);
  EXPECT_NE(again.out.find("nothing left to do"), std::string::npos) << again.out;
  EXPECT_EQ(run({"checkpoint", "ls", "run"}).status, 0);
  const Result text = run({"generate", "run", "--prompt", "ab", "--tokens", "5"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out.rfind("ab", 0), 0u);
}

TEST_F(CommandTest, AStopOnRequestSavesAndTheSameCommandContinues) {
  int before = 0;
  for (const auto& [signal, status] : {std::pair{SIGTERM, 75}, {SIGUSR1, 75}, {SIGINT, 130}}) {
    const pid_t child = start({"train", "job.yaml", "--set", "training.steps=1000000"});
    wait_for_steps(before + 2);
    kill(child, signal);
    const Result r = finish(child);
    EXPECT_EQ(r.status, status) << r.err;
    EXPECT_GE(steps(), before + 2) << r.out << r.err;
    before = steps();
    EXPECT_TRUE(fs::exists(dir_ / "run" / "checkpoints" / "latest"));
    EXPECT_NE(r.out.find("planned and measured"), std::string::npos) << "this part is held to its plan too";
  }
  const Result rest = run({"train", "job.yaml", "--set", "training.steps=" + std::to_string(before + 1)});
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(steps(), before + 1);
}

TEST_F(CommandTest, SIGUSR2SavesAndGoesOn) {
  for (const char* async : {"true", "false"}) {
    fs::remove_all(dir_ / "run");
    const pid_t child = start({"train", "job.yaml", "--set", "training.steps=1000000", "--set",
                               std::string("checkpoint.async=") + async});
    wait_for_steps(2);
    kill(child, SIGUSR2);
    const fs::path latest = dir_ / "run" / "checkpoints" / "latest";
    for (int i = 0; i < 3000 && !fs::exists(latest); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(fs::exists(latest)) << async;
    wait_for_steps(steps() + 2);
    kill(child, SIGTERM);
    const Result r = finish(child);
    EXPECT_EQ(r.status, 75) << r.err;
    const Result list = run({"checkpoint", "ls", "run", "--json"});
    EXPECT_EQ(nlohmann::json::parse(list.out).size(), 2u) << list.out;
  }
}

TEST_F(CommandTest, TheClockSavesAndStops) {
  const Result r = run({"train", "job.yaml", "--set", "training.steps=1000000", "--set",
                        "training.stop_after_minutes=0.02", "--set", "checkpoint.every_minutes=0.003",
                        "--set", "checkpoint.keep=100"});
  EXPECT_EQ(r.status, 75) << r.err;
  EXPECT_NE(r.out.find("stopped by training.stop_after_minutes"), std::string::npos) << r.out;
  const auto list = nlohmann::json::parse(run({"checkpoint", "ls", "run", "--json"}).out);
  EXPECT_GE(list.size(), 3u) << list;
  EXPECT_EQ(list.back()["step"], steps());
  EXPECT_EQ(run({"train", "job.yaml", "--set", "training.steps=" + std::to_string(steps() + 1)}).status, 0);
}

TEST_F(CommandTest, ACheckpointThatCannotBeSavedIsAFault) {
  // The folder of the checkpoints becomes a file while the job runs.
  for (const char* policy : {"stop", "continue"}) {
    fs::remove_all(dir_ / "run");
    const pid_t child = start({"train", "job.yaml", "--set", "training.steps=1000000", "--set",
                               std::string("checkpoint.on_error=") + policy});
    wait_for_steps(2);
    fs::rename(dir_ / "run" / "checkpoints", dir_ / "run" / "away");
    std::ofstream(dir_ / "run" / "checkpoints") << "in the way";
    kill(child, SIGUSR2);
    if (std::string(policy) == "continue") {
      for (int i = 0; i < 3000 && read(dir_ / "err").find("could not be saved") == std::string::npos; ++i)
        std::this_thread::sleep_for(10ms);
      wait_for_steps(steps() + 2);
      kill(child, SIGTERM);  // the last save must succeed, whatever on_error says
    }
    const Result r = finish(child);
    EXPECT_EQ(r.status, 1) << r.err;
    EXPECT_NE(r.err.find("a final attempt is made"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("triax: error: rank 0: checkpoint/"), std::string::npos) << r.err;
    EXPECT_NE(r.err.find((dir_ / "run" / "checkpoints").string() + ": "), std::string::npos) << r.err;
  }
}

TEST_F(CommandTest, ADiskThatIsFullForAWhileEndsNoJobAndCostsNoLine) {
  const auto handler = signal(SIGXFSZ, SIG_IGN);  // also in the child
  const pid_t child =
      start({"train", "job.yaml", "--set", "training.steps=1000000", "--set", "logging.interval=1000000"});
  signal(SIGXFSZ, handler);
  wait_for_steps(40);
  rlimit free{};
  prlimit(child, RLIMIT_FSIZE, nullptr, &free);
  const rlimit full{fs::file_size(dir_ / "run" / "metrics.jsonl") + 5, free.rlim_max};
  ASSERT_EQ(prlimit(child, RLIMIT_FSIZE, &full, nullptr), 0);
  const auto told = [&] {
    return read(dir_ / "err").find("metrics.jsonl: File too large") != std::string::npos;
  };
  for (int i = 0; i < 3000 && !told(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(told());
  std::this_thread::sleep_for(200ms);
  ASSERT_EQ(prlimit(child, RLIMIT_FSIZE, &free, nullptr), 0);
  wait_for_steps(steps() + 10);
  kill(child, SIGTERM);
  const Result r = finish(child);
  EXPECT_EQ(r.status, 75) << r.err;
  std::istringstream lines(read(dir_ / "run" / "metrics.jsonl"));
  int step = 0;
  for (std::string line; std::getline(lines, line);) {
    ASSERT_EQ(nlohmann::json::parse(line)["step"], ++step);
  }
  EXPECT_GT(step, 50);
}

TEST_F(CommandTest, ASecondJobInTheFolderIsRefusedAndAKilledOneIsNot) {
  const pid_t child = start({"train", "job.yaml", "--set", "training.steps=1000000"});
  wait_for_steps(2);
  const Result second = run({"train", "job.yaml"});
  EXPECT_EQ(second.status, 2) << second.err;
  EXPECT_NE(second.err.find((dir_ / "run").string() + ": another job is running"), std::string::npos)
      << second.err;
  kill(child, SIGKILL);
  finish(child);
  const Result next = run({"train", "job.yaml"});
  EXPECT_EQ(next.status, 0) << next.err;
}

TEST_F(CommandTest, AFaultExitsWith1AndNamesTheRank) {
  // A folder that can't be made, whoever runs the test.
  const Result r = run({"train", "job.yaml", "--set", "output_dir=/proc/triax"});
  EXPECT_EQ(r.status, 1) << r.err;
  EXPECT_EQ(r.err.rfind("triax: error: rank ", 0), 0u) << r.err;
  EXPECT_NE(r.err.find("/proc/triax"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace triax
