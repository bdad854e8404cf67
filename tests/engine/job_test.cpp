#include "engine/job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "engine/legal.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

class JobTest : public ::testing::Test {
 protected:
  JobTest()
      : dir_(fs::temp_directory_path() / ("triax-job-" + std::to_string(getpid()))),
        before_(fs::current_path()) {
    fs::create_directories(dir_);
    write("corpus.txt", std::string(1000, 'a'));
    write("short.txt", "abc");
    write("tokens.bin", "abc");
    write("job.yaml", R"(name: demo
output_dir: runs/demo
model: {architecture: gpt2, vocab_size: 256, hidden_size: 48, num_hidden_layers: 8, num_attention_heads: 12,
        intermediate_size: 96, max_position_embeddings: 256}
parallel: {tensor: 2, pipeline: 2, data: auto}
training: {steps: 200, global_batch_size: 32, micro_batch_size: 2, sequence_length: 128}
data: {train: [{path: corpus.txt}]}
)");
    fs::current_path(dir_);
  }
  ~JobTest() override {
    fs::current_path(before_);
    fs::remove_all(dir_);
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  static RunConfig load(const std::vector<std::string>& sets = {}, const JobRanks& ranks = {}) {
    return load_job({"job.yaml"}, sets, ranks);
  }
  static std::vector<std::string> problems(const std::vector<std::string>& sets, const JobRanks& ranks = {},
                                           const std::vector<std::string>& files = {"job.yaml"}) {
    std::vector<std::string> list;
    load_job(files, sets, ranks, list);
    return list;
  }
  // Of llama, which knows key-value heads.
  static std::vector<std::string> llama(std::vector<std::string> sets) {
    sets.push_back("model.architecture=llama");
    return sets;
  }
  fs::path dir_, before_;
};

TEST_F(JobTest, DefaultsAndPathsAreResolved) {
  const RunConfig c = load();
  EXPECT_EQ(c.model.num_key_value_heads, 12);
  EXPECT_TRUE(c.model.tie_word_embeddings);
  EXPECT_EQ(c.lr_schedule.decay_steps, 200);
  EXPECT_EQ(c.lr_schedule.decay_start, 0);
  const std::string here = fs::current_path().string();
  EXPECT_EQ(c.output_dir, here + "/runs/demo");
  EXPECT_EQ(c.checkpoint.dir, here + "/runs/demo/checkpoints");
  EXPECT_EQ(c.data.train[0].path, here + "/corpus.txt");
  EXPECT_TRUE(c.data.validation.empty());
  EXPECT_EQ(c.parallel.data, 1);  // auto, and nobody asked for more
  EXPECT_EQ(world_size(c), 4);
  EXPECT_FALSE(load({"model.architecture=llama"}).model.tie_word_embeddings);
  EXPECT_TRUE(load({"model.architecture=llama", "model.tie_word_embeddings=true"}).model.tie_word_embeddings);
  EXPECT_FALSE(load({"model.tie_word_embeddings=false"}).model.tie_word_embeddings);
  EXPECT_EQ(load({"lr_schedule.name=wsd"}).lr_schedule.decay_start, 180);
  EXPECT_EQ(load({"lr_schedule.name=wsd", "lr_schedule.decay_start=50"}).lr_schedule.decay_start, 50);
  EXPECT_EQ(load({"name=other", "output_dir=null"}).output_dir, here + "/runs/other");
  EXPECT_EQ(load({"output_dir=../x/./y/"}).output_dir, fs::path(here).parent_path().string() + "/x/y");
}

TEST_F(JobTest, WorldSize) {
  EXPECT_EQ(load({}, {0, 8}).parallel.data, 2);
  EXPECT_EQ(load({}, {16, 0}).parallel.data, 4);
  EXPECT_EQ(load({"parallel.data=2"}, {}).parallel.data, 2);
  EXPECT_EQ(load({"parallel.data=2"}, {8, 8}).parallel.data, 2);
}

TEST_F(JobTest, TheEffectiveConfigurationReadsBackEqual) {
  const RunConfig c = load({"optimizer.lr=1e-5", "seed=9223372036854775807", "parallel.data=4"});
  EXPECT_EQ(config_from_yaml(to_yaml(c), "job"), c);
  EXPECT_EQ(config_from_yaml(to_json(c), "job"), c);
  // A stored job runs again as it is, from anywhere.
  write("stored.yaml", to_yaml(c));
  fs::current_path("/");
  EXPECT_EQ(load_job({(dir_ / "stored.yaml").string()}, {}, {}), c);
  EXPECT_THROW(config_from_yaml("model: 3", "job"), Error);
}

TEST_F(JobTest, OverlaysGoLeftToRightThenSets) {
  write("a.yaml", "training: {steps: 10, micro_batch_size: 4}\nname: a\n");
  write("b.yaml", "training: {steps: 20}\n");
  const RunConfig c = load_job({"job.yaml", "a.yaml", "b.yaml"}, {"name=set"}, {});
  EXPECT_EQ(c.training.steps, 20);
  EXPECT_EQ(c.training.micro_batch_size, 4);
  EXPECT_EQ(c.name, "set");
}

TEST_F(JobTest, LegalJobs) {
  for (const auto& sets : std::vector<std::vector<std::string>>{
           {"parallel.tensor=3"},
           {"parallel.tensor=12"},
           {"parallel.pipeline=8"},
           {"parallel.schedule=gpipe", "model.vocab_size=50257"},
           llama({"model.num_key_value_heads=3", "parallel.tensor=3"}),
           llama({"model.num_key_value_heads=1", "parallel.tensor=4"}),
           llama({"model.num_key_value_heads=2", "parallel.tensor=6"}),
           {"training.sequence_length=256"},
           {"parallel.data=16"},
           {"training.steps=5"},  // fewer than warmup_steps
           {"parallel.zero_stage=0", "parallel.zero_shard_ranks=auto"},
           {"data.train=[{path: corpus.txt, weight: 2}, {path: corpus.txt}]"},
           {"data.validation=[{path: corpus.txt}]"},
           {"data.validation=null"},
           {"checkpoint.async=true", "checkpoint.resume=never"}}) {
    const auto list = problems(sets);
    EXPECT_TRUE(list.empty()) << sets[0] << ": " << list[0];
  }
}

struct BadJob {
  std::vector<std::string> sets;
  std::string expected;  // one of the problems contains it
  JobRanks ranks;
};

TEST_F(JobTest, IllegalJobsNameTheRuleAndWhatWouldDo) {
  const std::string here = fs::current_path().string();
  const std::vector<BadJob> bad{
      {{"parallel.tensor=8"},
       "model.num_attention_heads: 12 is not divisible by parallel.tensor: 8; tensor can be 1, 2, 3, 4, 6, "
       "12",
       {}},
      {{"parallel.tensor=4", "model.intermediate_size=90"},
       "model.intermediate_size: 90 is not divisible by parallel.tensor: 4; tensor can be 1, 2, 3, 6",
       {}},
      {llama({"parallel.tensor=2", "model.num_key_value_heads=3"}),
       "model.num_key_value_heads: 3 is neither divisible by parallel.tensor: 2 nor divides it; tensor can "
       "be 1, 3, "
       "6, 12",
       {}},
      {llama({"model.num_key_value_heads=5"}),
       "model.num_attention_heads: 12 is not divisible by model.num_key_value_heads: 5; num_key_value_heads "
       "can be "
       "1, 2, 3, 4, 6, 12",
       {}},
      {{"model.num_key_value_heads=4"}, "gpt2 has no grouped heads; num_key_value_heads can be 12", {}},
      {{"model.num_attention_heads=10"},
       "model.hidden_size: 48 is not divisible by model.num_attention_heads: 10; num_attention_heads can be "
       "2, 4, 6, 8, 12, 16, 24, 48",
       {}},
      {llama({"model.num_attention_heads=16"}),
       "model.hidden_size: 48 / num_attention_heads: 16 is a head size of 3, which must be even for llama",
       {}},
      {{"parallel.pipeline=9"},
       "parallel.pipeline: 9 stages are more than model.num_hidden_layers: 8; pipeline can be 1 to 8",
       {}},
      {{"parallel.pipeline=4", "parallel.virtual_stages=3", "parallel.schedule=interleaved"},
       "parallel.pipeline: 4 * virtual_stages: 3 = 12 chunks are more than model.num_hidden_layers: 8; "
       "pipeline * "
       "virtual_stages can be at most 8",
       {}},
      {{"training.global_batch_size=33"},
       "training.global_batch_size: 33 is not a multiple of micro_batch_size * parallel.data = 2 * 1 = 2; "
       "global_batch_size can be 32 or 34, or micro_batch_size * data can be 1, 3, 11, 33",
       {}},
      {{},
       "training.global_batch_size: 32 is not a multiple of micro_batch_size * parallel.data = 2 * 3 = 6",
       {0, 12}},
      {{"parallel.schedule=interleaved"},
       "parallel.schedule: interleaved needs more than one chunk per rank, virtual_stages is 1; "
       "virtual_stages can be 2 to 4, or the schedule 1f1b",
       {}},
      {{"parallel.virtual_stages=2"},
       "parallel.virtual_stages: 2 belongs to schedule interleaved, the schedule is 1f1b",
       {}},
      {{"parallel.schedule=interleaved", "parallel.virtual_stages=2", "training.global_batch_size=30"},
       "interleaved needs the 15 micro-batches (global_batch_size / (micro_batch_size * data)) divisible by "
       "parallel.pipeline: 2; pipeline can be 1, 3",
       {}},
      // Values that another key forbids are not offered.
      {{"parallel.schedule=interleaved", "parallel.pipeline=5", "parallel.virtual_stages=2",
        "model.num_hidden_layers=7"},
       "divisible by parallel.pipeline: 5; pipeline can be 1, 2",
       {}},
      {{"parallel.schedule=interleaved", "parallel.pipeline=4", "model.num_hidden_layers=7"},
       "virtual_stages is 1; the schedule can be 1f1b",
       {}},
      {llama({"model.num_attention_heads=10", "model.num_key_value_heads=3"}),
       "num_attention_heads: 10; num_attention_heads can be 6, 12, 24",
       {}},
      {{"model.num_attention_heads=10", "parallel.tensor=5"},
       "num_attention_heads: 10; hidden_size can be 40 or 50",
       {}},
      {{"parallel.data=2", "training.global_batch_size=8"},
       "but --ranks gives 12; tensor * pipeline can be 3, 6, 12, or the number of ranks 8",
       {0, 12}},
      {{"parallel.sequence_parallel=true", "parallel.tensor=1"},
       "parallel.sequence_parallel: true needs parallel.tensor above 1, it is 1",
       {}},
      {{"parallel.sequence_parallel=true", "training.sequence_length=127"},
       "training.sequence_length: 127 is not divisible by parallel.tensor: 2, which sequence_parallel needs; "
       "sequence_length can be 126 or 128",
       {}},
      {{"parallel.sequence_parallel=true", "training.sequence_length=15"},
       "which sequence_parallel needs; tensor can be 3",
       {}},
      {{"parallel.sequence_parallel=true", "parallel.tensor=4", "training.sequence_length=255",
        "model.num_attention_heads=16", "model.intermediate_size=64", "model.max_position_embeddings=255"},
       "which sequence_parallel needs; sequence_length can be 252",
       {}},
      {{"training.sequence_length=257"},
       "training.sequence_length: 257 is more than model.max_position_embeddings: 256; sequence_length can "
       "be 1 to "
       "256",
       {}},
      {{"model.vocab_size=100"},
       "corpus.txt is read as bytes, which needs model.vocab_size of at least 256; it is 100",
       {}},
      {{"data.train=[{path: nowhere.txt}]"},
       "data.train[0].path: " + here + "/nowhere.txt: no such file",
       {}},
      {{"data.validation=[{path: corpus.txt}, {path: .}]"},
       "data.validation[1].path: " + here + ": not a regular file",
       {}},
      {{"data.train=[{path: short.txt}]"},
       "short.txt has 3 tokens, a sample takes training.sequence_length + 1 = 129; sequence_length can be 1 "
       "to 2",
       {}},
      {{"data.train=[]"}, "data.train: the list is empty", {}},
      {{"data.train=null"},
       "data.train: expected a list of items, each a mapping with the keys path, weight, got nothing",
       {}},
      {{"checkpoint.resume=nowhere"}, "checkpoint.resume: " + here + "/nowhere: no such folder", {}},
      {{"output_dir=corpus.txt"}, "output_dir: " + here + "/corpus.txt exists and is not a folder", {}},
      {{"checkpoint.load=weights"},
       "checkpoint.load: weights belongs to a checkpoint.resume that names a checkpoint, resume is auto; "
       "load "
       "can be all"},
      {{"lr_schedule.decay_start=5"},
       "lr_schedule.decay_start: 5 belongs to the schedule wsd, the schedule is cosine",
       {}},
      {{"lr_schedule.name=wsd", "lr_schedule.decay_start=201"},
       "lr_schedule.decay_start: 201 is after decay_steps: 200; decay_start can be 1 to 200",
       {}},
      {{"parallel.data=6", "parallel.zero_shard_ranks=4", "training.global_batch_size=36"},
       "parallel.zero_shard_ranks: 4 does not divide parallel.data: 6; zero_shard_ranks can be auto, 1, 2, "
       "3, 6",
       {}},
      {{"parallel.data=2", "parallel.zero_stage=0", "parallel.zero_shard_ranks=2"},
       "parallel.zero_shard_ranks: 2 belongs to zero_stage 1, zero_stage is 0; zero_shard_ranks can be auto, "
       "or "
       "zero_stage 1",
       {}},
      {{"training.partition_activations=true"},
       "training.partition_activations: true belongs to recompute full",
       {}},
      {{"training.cuda_graph=on"}, "training.cuda_graph: on belongs to device cuda, device is ", {}},
      {{"training.cuda_graph=on", "training.device=cuda", "parallel.data=2"},
       "training.cuda_graph: on belongs to one rank, since the hosts of 8 take part",
       {}},
      {{"parallel.transport=nccl"},
       "parallel.transport: nccl is about what lies on GPUs, training.device is auto; transport can be auto, "
       "or device cuda",
       {}},
      // World size
      {{},
       "parallel.data: auto needs ranks divisible by tensor * pipeline = 2 * 2 = 4, but --ranks gives 6 "
       "ranks",
       {0, 6}},
      {{},
       "but the launcher gives 6 ranks; ranks can be 4, 8, 12, ...; tensor * pipeline can be 3, 6",
       {6, 0}},
      {{"parallel.data=2"},
       "parallel: tensor * pipeline * data = 2 * 2 * 2 = 8 ranks, but --ranks gives 4; parallel.data can be "
       "1 or "
       "auto, or the number of ranks 8",
       {0, 4}},
      {{"parallel.data=2"},
       "but the launcher gives 6; tensor * pipeline can be 3, 6, or the number of ranks 8",
       {6, 0}},
      {{}, "--ranks 4 disagrees with the 8 processes of the launcher", {8, 4}},
      {{"parallel.data=1000000"}, "at most 1048576 can be numbered", {}},
      // Keys and types
      {{"modle.hidden_size=3"},
       "--set modle.hidden_size=3: modle: unknown key; the nearest known key is model",
       {}},
      {{"training.setps=3"}, "training.setps: unknown key; the nearest known key is training.steps", {}},
      {{"model.layers=3"}, "model.layers: unknown key; the nearest known key is model.num_hidden_layers", {}},
      {{"model.hidden_size=large"}, "model.hidden_size: expected a whole number of at least 1", {}},
      {{"training.steps=0"}, "training.steps: 0 is out of range", {}},
      {{"optimizer.betas=[0.9, 1.0]"},
       "optimizer.betas[1]: 1.0 is out of range; expected a number of at least 0 and below 1",
       {}},
      {{"parallel.zero_stage=2"},
       "parallel.zero_stage: 2 is out of range; expected a whole number of at least 0 and at most 1",
       {}},
      {{"model.architecture=gpt3"}, "expected one of gpt2, llama, got gpt3; did you mean gpt2?", {}},
  };
  for (const BadJob& job : bad) {
    const auto list = problems(job.sets, job.ranks);
    bool found = false;
    std::string all;
    for (const std::string& p : list) {
      found |= p.find(job.expected) != std::string::npos;
      all += "\n  " + p;
    }
    EXPECT_TRUE(found) << "expected: " << job.expected << "\ngot:" << all;
  }
}

TEST_F(JobTest, AGridThatNobodyChoseIsNotJudged) {
  JobRanks open{0, 8};
  open.leave_grid_open = true;
  const std::vector<std::string> sets{"parallel.sequence_parallel=true", "parallel.tensor=auto",
                                      "parallel.pipeline=auto"};
  EXPECT_EQ(problems(sets, open), std::vector<std::string>());
  const ParallelConfig p = load(sets, open).parallel;
  EXPECT_EQ(p.tensor, 0);
  EXPECT_EQ(p.pipeline, 0);
  EXPECT_EQ(p.data, 0);
  // No grid of 8 ranks fits: that alone is said, not what its place holder of one rank breaks.
  write("small.yaml", "ranks_per_node: 8\nmemory: 0.00001\n");
  const auto list = problems(sets, {0, 8, (dir_ / "small.yaml").string()});
  ASSERT_EQ(list.size(), 1u) << list[1];
  EXPECT_NE(list[0].find("no grid of 8 ranks fits the memory"), std::string::npos) << list[0];
  // A device alone is no cluster to choose for.
  const auto device = problems(sets, {0, 8, "", "h100"});
  ASSERT_EQ(device.size(), 1u);
  EXPECT_NE(device[0].find("give --cluster FILE whose device is h100"), std::string::npos) << device[0];
}

TEST_F(JobTest, RequiredKeys) {
  write("empty.yaml", "name: x\n");
  const auto list = problems({}, {}, {"empty.yaml"});
  std::string all;
  for (const std::string& p : list) all += p + "\n";
  for (const char* key :
       {"model.vocab_size", "model.hidden_size", "model.num_hidden_layers", "model.num_attention_heads",
        "model.intermediate_size", "model.max_position_embeddings", "training.steps",
        "training.global_batch_size", "training.micro_batch_size", "data.train"})
    EXPECT_NE(all.find(std::string(key) + ": missing"), std::string::npos) << key;
  EXPECT_EQ(list.size(), 10u) << all;  // and no rule that builds on them
}

TEST_F(JobTest, EveryViolationAtOnce) {
  const auto list =
      problems({"parallel.tensor=8", "training.stpes=3", "training.global_batch_size=33", "optimizer.lr=fast",
                "training.sequence_length=300", "data.train=[{path: no.txt}]"});
  EXPECT_EQ(list.size(), 6u);
  try {
    load({"parallel.tensor=8", "training.stpes=3"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("the job has 2 problems:\n  - "), std::string::npos)
        << error.what();
  }
}

TEST_F(JobTest, ShardRanksMayBeAllOfDataOrOne) {
  EXPECT_TRUE(problems({"parallel.data=2", "parallel.zero_shard_ranks=2"}).empty());
  EXPECT_TRUE(problems({"parallel.data=2", "parallel.zero_shard_ranks=1"}).empty());
}

TEST_F(JobTest, DataFilesOfOtherKindsAreToldApart) {
  write("tokens.bin", "no header");
  const auto list = problems({"data.train=[{path: tokens.bin}]"});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("data.train[0].path"), std::string::npos) << list[0];
  EXPECT_NE(list[0].find("less than the 1024 of llm.c's header"), std::string::npos) << list[0];
  write("notes.md", "text");
  EXPECT_NE(problems({"data.train=[{path: notes.md}]"})[0].find("supported are .txt, .jsonl, .bin"),
            std::string::npos);
}

TEST_F(JobTest, BrokenFilesAreToldWithoutWhatTheyLack) {
  write("broken.yaml", "model: {hidden_size: 3\ntraining: {steps: 4}\n");
  const auto list = problems({}, {}, {"job.yaml", "broken.yaml", "missing.yaml"});
  ASSERT_EQ(list.size(), 2u);
  EXPECT_NE(list[0].find("broken.yaml:2:9: not valid YAML"), std::string::npos) << list[0];
  EXPECT_EQ(list[1], "missing.yaml: no such file");
  EXPECT_EQ(problems({}, {}, {"."})[0], ".: is a folder, not a job file");
}

TEST_F(JobTest, ThreadsPerRank) {
  RunConfig c = load();
  EXPECT_EQ(compute_threads(c, 1 << 20), 1);
  EXPECT_GE(compute_threads(c, 1), 1);
  c.training.threads = 3;
  EXPECT_EQ(compute_threads(c, 8), 3);
}

TEST_F(JobTest, TextIsReadByNoOtherTokenizerThanBytes) {
  EXPECT_EQ(load().data.tokenizer, "bytes");
  const std::vector<std::string> list = problems({"data.tokenizer=nowhere/tokenizer.json"});
  ASSERT_EQ(list.size(), 2u);
  const std::string tokenizer = (dir_ / "nowhere/tokenizer.json").string();  // stored absolute
  EXPECT_EQ(list[0].rfind("data.tokenizer: ", 0), 0u) << list[0];
  EXPECT_NE(list[0].find(tokenizer), std::string::npos) << list[0];
  EXPECT_NE(list[1].find("run `triax tokenize " + (dir_ / "corpus.txt").string() + " --tokenizer " +
                         tokenizer + " --output " + (dir_ / "corpus").string() + "`"),
            std::string::npos)
      << list[1];
}

TEST_F(JobTest, PatternsAndJsonLinesAreSources) {
  write("a.jsonl", "{\"body\": \"" + std::string(400, 'x') + "\"}\n");
  write("corpus-2.txt", std::string(3000, 'b'));
  const RunConfig c = load({"data.train=[{path: \"corp*.txt\", weight: 2}, {path: a.jsonl}]",
                            "data.json_key=body", "model.vocab_size=257"});
  const std::vector<DataSource> expected{{(dir_ / "corpus-2.txt").string(), 1.5},
                                         {(dir_ / "corpus.txt").string(), 0.5},
                                         {(dir_ / "a.jsonl").string(), 1.0}};
  EXPECT_EQ(c.data.train, expected);
  EXPECT_EQ(problems({"data.train=[{path: a.jsonl}]", "data.json_key=body"}),
            std::vector<std::string>{"data.train[0].path: " + (dir_ / "a.jsonl").string() +
                                     " is read as bytes with token 256 after each document, which needs "
                                     "model.vocab_size of at least 257; it is 256"});
  EXPECT_EQ(problems({"data.train=[{path: none-*.txt}]"}),
            std::vector<std::string>{"data.train[0].path: " + (dir_ / "none-*.txt").string() +
                                     ": no file fits this pattern"});
  const std::vector<std::string> refused = problems({"data.eod_mask_loss=true"});
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].find("data.eod_mask_loss: is out of scope"), std::string::npos) << refused[0];
}

TEST_F(JobTest, TheTokenizersTokensFitTheVocabulary) {
  const std::string tokenizer = TRIAX_SOURCE_DIR "/tests/golden/tokenizers/gpt2.json";
  std::string ids(1024 + 2 * 400, '\0');
  const int32_t header[3] = {20240520, 1, 400};
  ids.replace(0, sizeof header, reinterpret_cast<const char*>(header), sizeof header);
  const std::vector<std::string> sets{"data.tokenizer=" + tokenizer,
                                      "data.train=[{path: " + write("ids.bin", ids) + "}]"};
  const std::vector<std::string> list = problems(sets);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_NE(list[0].find("has 338 tokens, model.vocab_size is 256; it can be 338 or more"), std::string::npos)
      << list[0];
  EXPECT_EQ(load({sets[0], sets[1], "model.vocab_size=338"}).data.tokenizer, tokenizer);
}

}  // namespace
}  // namespace triax
