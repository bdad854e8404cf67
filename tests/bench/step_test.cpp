#include "bench/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "engine/job.h"

namespace triax {
namespace {

RunConfig tiny_job() {
  RunConfig config = gpt2_124m_job();
  config.model.vocab_size = 64;
  config.model.hidden_size = 32;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = config.model.num_key_value_heads = 4;
  config.model.intermediate_size = 64;
  config.model.max_position_embeddings = 16;
  config.training.global_batch_size = 4;
  config.training.micro_batch_size = 2;
  config.training.sequence_length = 16;
  config.optimizer.lr = 1e-2;
  return config;
}

std::vector<nlohmann::json> turns(const RunConfig& config, const std::string& lines,
                                  const std::string& tokens = "") {
  StepOptions options;
  options.turns = true;
  options.tokens = tokens;
  std::istringstream in(lines);
  std::stringstream out;
  bench_step(in, out, config, options);
  std::vector<nlohmann::json> answers;
  for (std::string line; std::getline(out, line);) answers.push_back(nlohmann::json::parse(line));
  return answers;
}

std::string token_file(const std::vector<int32_t>& tokens) {
  std::string path = testing::TempDir() + "bench_step_tokens.bin";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(int32_t)));
  return path;
}

TEST(StepTurns, AnswersEachLineAndGoesOnTraining) {
  const auto answers = turns(tiny_job(), "2\n3\n");
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].at("threads"), compute_threads(tiny_job(), 1));
  EXPECT_EQ(answers[1].at("seconds").size(), 2u);
  EXPECT_EQ(answers[2].at("losses").size(), 3u);
  EXPECT_NEAR(answers[1].at("losses").front().get<double>(), std::log(64.0), 0.2);
  EXPECT_LT(answers[2].at("losses").back(), 0.9 * answers[1].at("losses").front().get<double>());
  // One turn of five steps is the same run.
  const auto whole = turns(tiny_job(), "5\n");
  EXPECT_EQ(whole[1].at("losses").back(), answers[2].at("losses").back());
}

TEST(StepTurns, AGridTrainsOnTheSameBatch) {
  RunConfig grid = tiny_job();
  grid.parallel.tensor = grid.parallel.pipeline = grid.parallel.data = 2;
  const auto one = turns(tiny_job(), "3\n"), eight = turns(grid, "3\n");
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(eight[1].at("losses")[i].get<double>(), one[1].at("losses")[i].get<double>(), 1e-4);
}

TEST(StepTokens, TheFileIsTheBatch) {
  std::vector<int32_t> tokens(4 * 17, 7);
  const auto answers = turns(tiny_job(), "20\n", token_file(tokens));
  EXPECT_LT(answers[1].at("losses").back(), 0.5);  // one token again and again is soon known
}

TEST(StepTokens, AnotherSizeOrVocabularyIsRefused) {
  std::vector<int32_t> tokens(4 * 17, 7);
  tokens.back() = 64;
  EXPECT_THROW(turns(tiny_job(), "1\n", token_file(tokens)), Error);
  tokens.back() = 63;
  EXPECT_NO_THROW(turns(tiny_job(), "1\n", token_file(tokens)));
  tokens.push_back(1);
  EXPECT_THROW(turns(tiny_job(), "1\n", token_file(tokens)), Error);
  EXPECT_THROW(turns(tiny_job(), "1\n", "/nowhere/tokens.bin"), Error);
}

}  // namespace
}  // namespace triax
