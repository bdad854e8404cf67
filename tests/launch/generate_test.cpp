// `triax generate` and `triax evaluate` on a run of the program itself: a model that has learned its text.

#include <cmath>

#include "job_runs.h"
#include "support/python.h"

namespace triax::test {
namespace {

constexpr const char* job = R"(
name: generated
model: {architecture: llama, vocab_size: 257, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 2, intermediate_size: 64, max_position_embeddings: 96}
parallel: {tensor: 1, pipeline: 2}
training: {steps: 120, global_batch_size: 4, micro_batch_size: 2, sequence_length: 32}
optimizer: {lr: 1.0e-2}
data: {train: [{path: learn.txt}], validation: [{path: held.txt}], validation_interval: 120, validation_batches: 2}
)";

constexpr const char* alphabet = "abcdefghijklmnopqrstuvwxyz ";

class GenerateCommand : public JobRuns {
 protected:
  GenerateCommand() : JobRuns(job) {
    std::ofstream learn(dir_ / "learn.txt"), held(dir_ / "held.txt");
    for (int i = 0; i < 400; ++i) learn << alphabet;
    std::string text;
    while (text.size() < 2 * 4 * 32 + 1) text += alphabet;
    held << text.substr(0, 2 * 4 * 32 + 1);  // the validation's samples to the last token
  }
  /// Standard output of `triax ARGUMENTS`; what went to standard error stands in `errors_`.
  std::string out(const std::string& arguments, const std::string& launcher = "") {
    const std::string line = "cd " + dir_.string() + " && " + launcher + TRIAX_BINARY_DIR + "/triax " +
                             arguments + " >stdout 2>stderr";
    const int status = std::system(line.c_str());
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    errors_ = read("stderr");
    return read("stdout");
  }
  std::string read(const std::string& name) const {
    std::ifstream in(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int status_ = 0;
  std::string errors_;
};

TEST_F(GenerateCommand, WritesWhatTheModelHasLearnedOnEveryGrid) {
  ASSERT_EQ(triax("run", "-q"), 0) << output("run");
  const std::string greedy = "generate run --prompt 'abcdefghijkl' --tokens 40 --temperature 0 ";
  const std::string text = out(greedy);
  EXPECT_EQ(status_, 0) << errors_;
  EXPECT_EQ(text, "abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxy\n");
  EXPECT_NE(errors_.find("prompt 12 tokens"), std::string::npos) << errors_;
  EXPECT_EQ(out(greedy + "--ranks 2"), text) << errors_;
  EXPECT_EQ(out(greedy + "--ranks 4 --set parallel.pipeline=2"), text) << errors_;
  EXPECT_EQ(out(greedy + "--set parallel.tensor=4 --set training.precision=bf16"), text) << errors_;
  if (have_mpirun()) {
    EXPECT_EQ(out(greedy + "--set parallel.pipeline=2", std::string("exec env ") + mpirun + "-n 4 "), text)
        << errors_;
  }

  const auto json =
      nlohmann::json::parse(out("generate run --prompt 'abc' --tokens 90 --samples 2 --json -v"));
  EXPECT_EQ(json["samples"].size(), 2u);
  EXPECT_EQ(json["samples"][0]["ids"].size(), 90u);
  EXPECT_EQ(json["samples"][0]["ended_by"], "tokens");
  EXPECT_EQ(json["memory_bytes"]["kv cache"],
            2 * 2 * 2 * 128 * 8 * 4);  // layers, k and v, heads, positions, size
  EXPECT_NE(errors_.find("kv cache"), std::string::npos);
  EXPECT_EQ(out("generate run --prompt-ids 97,98,99 --tokens 3 --temperature 0 -q"),
            "97,98,99,100,101,102\n");
  EXPECT_EQ(errors_, "");
  std::ofstream(dir_ / "prompt.txt") << "xyz ab";
  EXPECT_EQ(out("generate run --prompt-file prompt.txt --text-alone --tokens 3 --temperature 0"), "cde\n");
  out("generate run --prompt abc --tokens 1000 --temperature 0");
  EXPECT_NE(errors_.find("ended at max_position_embeddings: 96"), std::string::npos) << errors_;
}

TEST_F(GenerateCommand, EvaluatesWhatTrainingValidated) {
  ASSERT_EQ(triax("run", "-q --set training.steps=20"), 0) << output("run");
  double validated = 0;
  std::ifstream metrics(dir_ / "run" / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);)
    validated = nlohmann::json::parse(line).value("validation_loss", validated);
  const auto total = [&](const std::string& arguments) {
    return nlohmann::json::parse(out("evaluate run --json " + arguments))["total"];
  };
  const auto one = total("");
  EXPECT_EQ(one["loss"], validated) << errors_;
  EXPECT_EQ(one["tokens"], 256);
  EXPECT_NEAR(one["bits_per_byte"].get<double>() * std::log(2.0), validated, 1e-12);
  EXPECT_EQ(total("--ranks 3")["loss"], validated);
  EXPECT_EQ(total("--set parallel.pipeline=2")["loss"], validated);
  EXPECT_NEAR(total("--set parallel.tensor=4")["loss"].get<double>() / validated, 1, 1e-5);
  const auto two = nlohmann::json::parse(
      out("evaluate run held.txt learn.txt --windows 4 --json --set training.sequence_length=16"));
  EXPECT_EQ(two["files"].size(), 2u);
  EXPECT_EQ(two["total"]["tokens"], 2 * 4 * 16);
  const std::string table = out("evaluate run held.txt --stride 8");
  EXPECT_NE(table.find("windows of 32 tokens, one every 8"), std::string::npos) << table;
}

TEST_F(GenerateCommand, RefusesWhatItCanNotDo) {
  ASSERT_EQ(triax("run", "-q --set training.steps=1"), 0) << output("run");
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    out(arguments);
    EXPECT_EQ(status_, 2) << arguments;
    EXPECT_NE(errors_.find(why), std::string::npos) << arguments << ": " << errors_;
  };
  refused("generate nowhere --prompt x", "no complete checkpoint at nowhere");
  refused("generate run", "prompt");
  refused("generate run --prompt x --set optimizer.lr=1",
          "makes no difference to a model that is not trained");
  refused("generate run --prompt x --set parallel.tensor=3", "tensor can be 1, 2, 4");
  refused("generate run --prompt x --set parallel.data=2", "data can be 1");
  refused("generate run --prompt " + std::string(96, 'x'), "a prompt can have 1 to 95");
  refused("generate run --prompt-ids 1,257", "tokens can be 0 to 256");
  refused("generate run --prompt x --temperature nan", "nan is not between 0 and 100");
  refused("generate run --prompt x --tokenizer nothing.json", "there is no tokenizer nothing.json");
  refused("evaluate run nothing.txt", "nothing.txt");
  // A folder without a tokenizer is hardly one of bytes.
  out("checkpoint export run hf");
  ASSERT_EQ(status_, 0) << errors_;
  const std::string text = out("generate hf --prompt abc --tokens 3 --temperature 0 -q");
  fs::remove(dir_ / "hf/tokenizer.json");
  refused("generate hf --prompt abc", "hf has no tokenizer.json or tokenizer.model");
  refused("evaluate hf held.txt", "hf has no tokenizer.json or tokenizer.model");
  EXPECT_EQ(out("generate hf --prompt abc --tokenizer bytes --tokens 3 --temperature 0 -q"), text) << errors_;
  // Nor is its import, which is evaluated as the folder is.
  EXPECT_NE(
      out("checkpoint import hf imported --json").find("neither a tokenizer.json nor a tokenizer.model"),
      std::string::npos);
  refused("generate imported --prompt abc", "--tokenizer FILE");
  refused("evaluate imported held.txt", "--tokenizer FILE");
  const auto total = [&](const std::string& model) {
    return nlohmann::json::parse(out("evaluate " + model + " held.txt --tokenizer bytes --json"))["total"];
  };
  EXPECT_EQ(total("imported"), total("hf"));
  refused("evaluate run --stride 33", "it can be 1 to 32");
}

TEST_F(GenerateCommand, WhatCanNotBeWrittenIsAFault) {
  ASSERT_EQ(triax("run", "-q --set training.steps=1"), 0) << output("run");
  for (const char* command :
       {"generate run --prompt x --tokens 3", "evaluate run held.txt --json", "schema"}) {
    const int status = std::system(
        ("cd " + dir_.string() + " && " TRIAX_BINARY_DIR "/triax " + command + " >/dev/full 2>stderr")
            .c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << command;
    EXPECT_NE(read("stderr").find("No space left on device"), std::string::npos) << command << read("stderr");
  }
  // And a reader that goes away ends it.
  EXPECT_EQ(std::system(
                ("cd " + dir_.string() +
                 " && timeout 60 bash -c 'set -o pipefail; " TRIAX_BINARY_DIR
                 "/triax generate run --prompt-ids 1 --samples 1000000 --tokens 50 -q 2>stderr | head -c 3; "
                 "test ${PIPESTATUS[0]} = 1' >stdout")
                    .c_str()),
            0)
      << read("stderr");
}

TEST_F(GenerateCommand, AnInterruptEndsTheTextWith130) {
  ASSERT_EQ(triax("run", "-q --set training.steps=1 --set model.max_position_embeddings=100000"), 0)
      << output("run");
  // Reads a first character, interrupts, and reads to the end.
  const std::string line =
      "cd " + dir_.string() + " && { " + TRIAX_BINARY_DIR +
      "/triax generate run --prompt-ids 120 --tokens 99000 2>stderr & p=$!; while [ ! -s text ]; do sleep "
      "0.05; done; kill -INT $p; wait $p; echo $? >status; } >text";
  ASSERT_EQ(std::system(("timeout 60 bash -c '" + line + "'").c_str()), 0);
  EXPECT_EQ(read("status"), "130\n") << read("stderr");
  EXPECT_EQ(read("text").back(), '\n');
  EXPECT_NE(read("stderr").find("ending with this token"), std::string::npos);
}

// Folders of Hugging Face: the tokens that transformers' generate() takes, and its losses window by window.
using FullGenerate = GenerateCommand;

TEST_F(FullGenerate, TransformersGeneratesAndScoresTheSame) {
  std::string why;
  const std::string python = python_with("torch transformers safetensors h5py numpy pyyaml", &why);
  if (python.empty()) GTEST_SKIP() << why;
  const std::string script = "HF_HUB_OFFLINE=1 " + python +
                             " " TRIAX_SOURCE_DIR "/tests/launch/generated.py " + dir_.string() + " >" +
                             (dir_ / "python.out").string() + " 2>&1";
  ASSERT_EQ(std::system(script.c_str()), 0) << read("python.out");
  const auto expected = nlohmann::json::parse(read("expected.json"));
  ASSERT_GE(expected.size(), 5u);
  for (const auto& [kind, theirs] : expected.items()) {
    std::string prompt;
    for (const int id : theirs["prompt"]) prompt += (prompt.empty() ? "" : ",") + std::to_string(id);
    for (const std::string grid : {"", " --ranks 2", " --ranks 4 --set parallel.pipeline=2"}) {
      const auto ours = nlohmann::json::parse(out("generate " + kind + "/model --prompt-ids " + prompt +
                                                  " --tokens 20 --temperature 0 --json" + grid));
      std::vector<int> ids = theirs["prompt"];
      for (const int id : ours["samples"][0]["ids"]) ids.push_back(id);
      EXPECT_EQ(nlohmann::json(ids), theirs["ids"]) << kind << grid;
    }
    const auto loss = nlohmann::json::parse(
        out("evaluate " + kind +
            "/model text.txt --tokenizer bytes --json --stride 6 --set training.sequence_length=16"));
    EXPECT_NEAR(loss["total"]["loss"].get<double>() / theirs["loss"].get<double>(), 1, 1e-5)
        << kind << errors_;
    EXPECT_EQ(loss["total"]["tokens"], 102);
  }
}

}  // namespace
}  // namespace triax::test
