// What `triax init` writes: published shapes, on the planner's grid, as a job file that reads back as itself.
#include "engine/draft.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "core/fields.h"
#include "engine/job.h"
#include "model/gpt.h"

namespace triax {
namespace {

// The numbers of elements of the published weights (safetensors' headers on the Hugging Face hub).
TEST(ModelSizes, HaveThePublishedNumbersOfParameters) {
  const std::map<std::pair<std::string, std::string>, int64_t> published{
      {{"gpt2", "124m"}, 124439808},   {{"gpt2", "355m"}, 354823168},   {{"gpt2", "774m"}, 774030080},
      {{"gpt2", "1.5b"}, 1557611200},  {{"llama", "135m"}, 134515008},  {{"llama", "360m"}, 361821120},
      {{"llama", "1.1b"}, 1100048384}, {{"llama", "7b"}, 6738415616},   {{"llama", "8b"}, 8030261248},
      {{"llama", "13b"}, 13015864320}, {{"llama", "70b"}, 68976648192}, {{"llama", "405b"}, 405853388800},
      {{"qwen2", "0.5b"}, 494032768},  {{"qwen2", "1.5b"}, 1543714304}, {{"qwen2", "7b"}, 7615616512},
      {{"qwen2", "72b"}, 72706203648}};
  for (const auto& [key, parameters] : published)
    EXPECT_EQ(parameter_count(model_size(key.first, key.second).model), parameters) << key.second;
  // Those whose weights are not published are named by their rounded number.
  EXPECT_NEAR(static_cast<double>(parameter_count(model_size("gpt2", "7b").model)), 6.7e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(model_size("gpt2", "13b").model)), 13e9, 0.2e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(model_size("gpt2", "175b").model)), 175e9, 1e9);
}

TEST(ModelSizes, EveryFamilyHasTheClassesOfSize) {
  for (const std::string& family : model_families())
    for (const std::string size : {"124m", "350m", "1b", "7b"}) {
      if (family == "qwen2" && size.back() == 'm') continue;  // the smallest is 0.5b
      EXPECT_EQ(model_size(family, size).family, family) << size;
    }
}

TEST(ModelSizes, WhatIsNotThereIsRefusedWithWhatIs) {
  const auto told = [](const std::string& family, const std::string& size) -> std::string {
    try {
      model_size(family, size);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage ? error.what() : "";
    }
    return "";
  };
  EXPECT_NE(told("gpt5", "7b").find("it can be gpt2, llama, qwen2"), std::string::npos);
  EXPECT_NE(told("llama", "3b").find("70b"), std::string::npos);
}

DraftRequest on_gpus(const std::string& family, const std::string& size, int ranks) {
  DraftRequest request{family, size, "", ranks};
  request.cluster.device = request.device = "h100";
  request.train = {"a.bin"};
  request.validation = {"b.bin"};
  return request;
}

TEST(Draft, IsTheSearchsQuickestGridAndItsBatchDivides) {
  const DraftRequest request = on_gpus("gpt2", "124m", 6);
  const Draft draft = draft_job(request);
  const TrainingConfig& t = draft.config.training;
  EXPECT_EQ(world_size(draft.config), 6);
  EXPECT_EQ(t.global_batch_size % (t.micro_batch_size * draft.config.parallel.data), 0);
  // No grid of the same micro-batch and recomputation is quicker than what was taken.
  RunConfig job = draft.config;
  job.parallel.tensor = job.parallel.pipeline = job.parallel.data = 0;
  if (draft.config.parallel.tensor == 1) job.parallel.tensor = 1;
  const GridSearch search = search_grids(job, 6, request.cluster);
  ASSERT_FALSE(search.fitting.empty());
  EXPECT_DOUBLE_EQ(search.fitting.front().cost.seconds, draft.choice.cost.seconds);
}

TEST(Draft, TheFileReadsBackAsTheDraftAndHasEverySentence) {
  const DraftRequest request = on_gpus("gpt2", "124m", 8);
  const Draft draft = draft_job(request);
  const std::string text = draft_yaml(draft, request, "/usr/share/triax/job.schema.json");
  EXPECT_EQ(text.rfind("# yaml-language-server: $schema=/usr/share/triax/job.schema.json\n", 0), 0u);
  EXPECT_NE(
      text.find("\n# Written by `triax init --for gpt2 --size 124m --ranks 8 --device h100 --data a.bin "
                "--validation b.bin`.\n"),
      std::string::npos)
      << text.substr(0, 300);
  RunConfig back = config_from_yaml(text, "draft");
  EXPECT_EQ(back.parallel.data, 0);
  EXPECT_EQ(back.lr_schedule.decay_steps, 0);
  back.parallel.data = draft.config.parallel.data;
  back.lr_schedule.decay_steps = draft.config.lr_schedule.decay_steps;
  EXPECT_EQ(back, draft.config);
  // Sentences are wrapped: compare without line ends and the marks of comments.
  std::string flat;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') {
      while (i + 1 < text.size() && (text[i + 1] == ' ' || text[i + 1] == '#')) ++i;
      flat += ' ';
    } else {
      flat += text[i];
    }
  std::vector<const FieldTableBase*> tables{&fields_of(static_cast<const RunConfig*>(nullptr))};
  int sentences = 0;
  while (!tables.empty()) {
    const FieldTableBase* table = tables.back();
    tables.pop_back();
    for (const Field& f : table->fields()) {
      EXPECT_NE(flat.find(f.doc), std::string::npos) << f.key;
      ++sentences;
      if (f.type->table()) tables.push_back(f.type->table());
    }
  }
  EXPECT_GT(sentences, 60);
}

TEST(Draft, WhatFitsNowhereIsRefusedWithWhatItNeedsAndWhatWouldDo) {
  const auto refusal = [](DraftRequest request) -> std::string {
    request.cluster.memory = 0.5;
    try {
      draft_job(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "124 million parameters fit half a GiB";
  };
  DraftRequest request = on_gpus("gpt2", "124m", 2);
  EXPECT_NE(refusal(request).find("the smallest needs"), std::string::npos) << refusal(request);
  EXPECT_NE(refusal(request).find("give more ranks, or a smaller --size"), std::string::npos);
  // More ranks of the host would have less memory each.
  request.cluster.device = "cpu";
  request.device.clear();
  const std::string host = refusal(request);
  EXPECT_NE(host.find("(--device h100, h200, a100, b200 or a number of GiB"), std::string::npos) << host;
  EXPECT_NE(host.find("or give fewer ranks, or a smaller --size"), std::string::npos) << host;
  EXPECT_EQ(host.find("more ranks"), std::string::npos) << host;
}

}  // namespace
}  // namespace triax
