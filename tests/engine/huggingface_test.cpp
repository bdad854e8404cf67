// Hugging Face folders in and out: every tensor in its place, every key of config.json computed or refused.

#include <gtest/gtest.h>

#include "checkpoint/safetensors_folder.h"
#include "checkpoint/shard.h"
#include "checkpoint/tensor_reader.h"
#include "data/sentencepiece_tokenizer.h"
#include "engine/hf_export.h"
#include "engine/hf_import.h"
#include "engine/hf_tokenizer.h"
#include "engine/job.h"
#include "engine/open_model.h"
#include "engine/pretrained.h"
#include "hf_models.h"
#include "model/gpt.h"

namespace triax::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

void expect_said(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "\"" << words << "\" is not in: " << text;
}

// Every tensor of the model is in the folder with its test_value()s, and no other.
void expect_tensors(const fs::path& folder, const HfModel& model, const std::string& what) {
  const SafeTensorsFolder read(folder);
  EXPECT_EQ(read.names().size(), model.tensors.size()) << what;
  for (const auto& item : model.tensors) {
    const SafeTensor* tensor = read.find(item.name);
    ASSERT_NE(tensor, nullptr) << what << ": " << item.name;
    ASSERT_EQ(tensor->shape, item.shape) << what << ": " << item.name;
    std::vector<float> values(static_cast<size_t>(tensor->numel()));
    read.read(item.name, 0, tensor->numel(), values.data());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], test_value(item.name, static_cast<int64_t>(i))) << what << ": " << item.name;
  }
}

std::vector<std::pair<std::string, HfModel>> models() {
  HfModel scaled = hf_llama("llama", false), linear = hf_llama("llama", true), untied = hf_gpt2();
  scaled.config["rope_scaling"] = llama3_scaling();
  linear.config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  untied.config["tie_word_embeddings"] = false;
  untied.config["n_inner"] = 96;
  untied.tensors.push_back({"lm_head.weight", {61, 24}});
  return {{"gpt2", hf_gpt2()},
          {"gpt2-untied", untied},
          {"llama3", scaled},
          {"linear", linear},
          {"qwen2", hf_llama("qwen2", true)}};
}

TEST(HuggingFace, ImportAndExportGiveTheSameTensorsAndTheSameModel) {
  const ScratchFolder folder;
  for (const auto& [name, model] : models()) {
    const fs::path in = folder.path() / name, imported = folder.path() / (name + "-triax"),
                   out = folder.path() / (name + "-out");
    model.write(in);
    const HfImport done = import_hf(in, imported, {}, false);
    EXPECT_EQ(done.tensors % 3, 0);
    const CheckpointInfo info = read_manifest(imported);
    EXPECT_EQ(info.step, 0);
    for (const FileRecord& file : info.files) verify_file(info, file);
    export_hf(info, out);
    expect_tensors(out, model, name);
    EXPECT_EQ(model_differences(read_hf_config(out).model, read_hf_config(in).model), "") << name;
    const json config = json::parse(content_of(out / "config.json"));
    for (const char* key : {"model_type", "architectures", "vocab_size"})
      EXPECT_EQ(config[key], model.config[key]);
    for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
      TensorReader reader(info);
      reader.each(*reader.find(std::string("optimizer/embed.tokens.weight/") + kind),
                  [](int64_t begin, int64_t end, const float* x) {
                    for (int64_t i = 0; i < end - begin; ++i) ASSERT_EQ(x[i], 0.0f);
                  });
    }
  }
}

// test_value()s are exact in 16 bits; files cut small hold the same.
TEST(HuggingFace, ExportsCutIntoFilesAndIn16BitsHoldTheSame) {
  const ScratchFolder folder;
  const HfModel model = hf_gpt2();
  model.write(folder.path() / "in", StoredType::f16);
  import_hf(folder.path() / "in", folder.path() / "triax", {}, false);
  const CheckpointInfo info = read_manifest(folder.path() / "triax");
  for (StoredType type : {StoredType::f32, StoredType::bf16, StoredType::f16}) {
    const fs::path out = folder.path() / std::string(name_of(type));
    HfExportOptions options;
    options.type = type;
    options.max_shard_bytes = 3000 * size_of(type);
    const HfExport done = export_hf(info, out, options);
    expect_tensors(out, model, std::string(name_of(type)));
    const json index = json::parse(content_of(out / safetensors_index));
    EXPECT_EQ(index["metadata"]["total_size"], done.bytes);
    std::set<std::string> files;
    for (const auto& [tensor, file] : index["weight_map"].items()) files.insert(file);
    EXPECT_GT(files.size(), 3U);
    for (const std::string& file : files) {
      const SafeTensorsFile read(out / file);
      int64_t bytes = 0;
      for (const SafeTensor& t : read.tensors()) bytes += t.end - t.begin;
      EXPECT_TRUE(bytes <= options.max_shard_bytes || read.tensors().size() == 1) << file;
    }
  }
}

// By hand: Conv1D's matrices lie transposed, and q, k and v side by side.
TEST(HuggingFace, ElementsAreWhereTheyBelong) {
  const ScratchFolder folder;
  hf_gpt2().write(folder.path());
  const PretrainedFolder read(folder.path());
  const auto element = [&](const std::string& name, int64_t r, int64_t c) {
    float x = 0;
    read.read(name, {{r, c}, {1, 1}}, &x);
    return x;
  };
  const std::string at = "transformer.h.1.";
  EXPECT_EQ(element("layers.1.attention.q.weight", 5, 7), test_value(at + "attn.c_attn.weight", 7 * 72 + 5));
  EXPECT_EQ(element("layers.1.attention.k.weight", 5, 7), test_value(at + "attn.c_attn.weight", 7 * 72 + 29));
  EXPECT_EQ(element("layers.1.attention.v.weight", 5, 7), test_value(at + "attn.c_attn.weight", 7 * 72 + 53));
  EXPECT_EQ(element("layers.1.mlp.up.weight", 90, 3), test_value(at + "mlp.c_fc.weight", 3 * 96 + 90));
  EXPECT_EQ(element("layers.1.mlp.down.weight", 3, 90), test_value(at + "mlp.c_proj.weight", 90 * 24 + 3));
  EXPECT_EQ(element("embed.tokens.weight", 60, 1), test_value("transformer.wte.weight", 60 * 24 + 1));
  float bias[3];
  read.read("layers.0.attention.v.bias", {{2}, {3}}, bias);
  EXPECT_EQ(bias[1], test_value("transformer.h.0.attn.c_attn.bias", 48 + 3));
  // A box from the middle, as a tensor rank of a zero slice asks for it.
  std::vector<float> box(5 * 4);
  read.read("layers.0.mlp.up.weight", {{10, 20}, {5, 4}}, box.data());
  for (int64_t r = 0; r < 5; ++r)
    for (int64_t c = 0; c < 4; ++c)
      EXPECT_EQ(box[static_cast<size_t>(r * 4 + c)],
                test_value("transformer.h.0.mlp.c_fc.weight", (20 + c) * 96 + 10 + r));
}

TEST(HuggingFace, AKeyOfConfigJsonIsComputedOrRefusedByName) {
  const auto refused = [](const json& config) {
    return error_of([&] { parse_hf_config(config, "config.json"); });
  };
  EXPECT_EQ(refused(hf_gpt2().config), "");
  for (const HfKey& key : hf_keys()) {
    if (key.use != HfUse::restricted) continue;
    const bool gpt2 = key.families == "gpt2";
    json config = gpt2 ? hf_gpt2().config : hf_llama("qwen2", true).config;
    config[key.key] = "something else";
    expect_said(refused(config), key.key + ": \"something else\"");
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{{"head_dim", 8},
                                                                            {"sandwich_norm", true},
                                                                            {"mlp_bias", true},
                                                                            {"attention_bias", true},
                                                                            {"hidden_act", "gelu"},
                                                                            {"num_hidden_layers", "two"},
                                                                            {"rope_theta", {1}}}) {
    json config = hf_llama("llama", false).config;
    config[key] = value;
    expect_said(refused(config), key);
  }
  json both = hf_gpt2().config;
  both["scale_attn_by_inverse_layer_idx"] = true;
  both["activation_function"] = "relu";
  expect_said(refused(both), "scale_attn_by_inverse_layer_idx: true; it can be [false]");
  expect_said(refused(both), "activation_function: \"relu\"");
  json scaled = hf_llama("llama", false).config;
  for (const char* type : {"yarn", "dynamic", "longrope"}) {
    scaled["rope_scaling"] = {{"rope_type", type}, {"factor", 2.0}};
    expect_said(refused(scaled), std::string("rope_scaling.rope_type: \"") + type + "\"");
  }
  scaled["rope_scaling"] = llama3_scaling();
  scaled["rope_scaling"]["attention_factor"] = 1.2;
  expect_said(refused(scaled), "rope_scaling.attention_factor");
  scaled["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}};
  expect_said(refused(scaled), "rope_scaling.high_freq_factor: missing");
  scaled["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  scaled["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  expect_said(refused(scaled), "rope_scaling and rope_parameters say different things");
  scaled.erase("rope_scaling");
  scaled["rope_theta"] = 10000.0;
  scaled["rope_parameters"]["rope_theta"] = 7.0;
  expect_said(refused(scaled), "rope_theta: 10000.0 is not rope_parameters.rope_theta: 7.0");
  expect_said(refused({{"model_type", "mamba"}}), "model_type: \"mamba\"; it can be gpt2, llama, qwen2");
  json head = hf_gpt2().config;
  head["architectures"] = {"GPT2ForSequenceClassification"};
  expect_said(refused(head), "GPT2ForSequenceClassification");
}

// What the files of published models say besides the shape: none of it changes what is computed.
TEST(HuggingFace, WhatPublishedModelsSayBesidesIsTaken) {
  const json gpt2{{"n_ctx", 16},
                  {"output_past", true},  // gpt2-xl
                  {"n_special", 0},       // gpt2-medium
                  {"predict_special_tokens", true},
                  {"_num_labels", 1},  // distilgpt2
                  {"id2label", {{"0", "LABEL_0"}}},
                  {"label2id", {{"LABEL_0", 0}}},
                  {"summary_activation", nullptr},
                  {"summary_first_dropout", 0.1},
                  {"summary_proj_to_labels", true},
                  {"summary_type", "cls_index"},
                  {"summary_use_proj", true},
                  {"gradient_checkpointing", false},
                  {"task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}}};
  const json llama{{"max_sequence_length", 32},  // LLaMA
                   {"pretraining_tp", 1},       {"attention_bias", false},
                   {"mlp_bias", false},         {"head_dim", 6},
                   {"rope_scaling", nullptr},   {"_commit_hash", "4e20"},
                   {"is_llama_config", true},  // SmolLM
                   {"rope_interleaved", false}, {"transformers.js_config", {{"dtype", "q4"}}}};
  const json qwen2{{"use_mrope", false},  // Qwen2.5
                   {"use_sliding_window", false}, {"sliding_window", 32768}, {"max_window_layers", 24},
                   {"attention_dropout", 0.0},    {"rope_scaling", nullptr}};
  const json five{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}},  // transformers 5
                  {"layer_types", {"full_attention", "full_attention"}},
                  {"dtype", "float32"},
                  {"pad_token_id", nullptr}};
  for (const auto& [model, besides] :
       {std::pair{hf_gpt2(), gpt2}, std::pair{hf_llama("llama", false), llama},
        std::pair{hf_llama("qwen2", true), qwen2}, std::pair{hf_llama("qwen2", true), five}}) {
    json config = model.config;
    config.update(besides);
    config.update(json{{"_name_or_path", "x"}, {"transformers_version", "4.40.1"}, {"use_cache", true}});
    EXPECT_EQ(error_of([&] {
                EXPECT_EQ(parse_hf_config(config, "").model, parse_hf_config(model.config, "").model);
              }),
              "");
  }
  json strange = hf_gpt2().config;
  strange["sandwich_norm"] = true;
  expect_said(error_of([&] { parse_hf_config(strange, "config.json"); }),
              "can be taken out of config.json; docs/huggingface.md lists the known ones");
}

TEST(HuggingFace, BothFormsOfRopeMeanTheSame) {
  json four = hf_llama("llama", false).config, five = four;
  four["rope_scaling"] = llama3_scaling();
  five.erase("rope_theta");
  five["rope_parameters"] = llama3_scaling();
  five["rope_parameters"]["rope_theta"] = 1e6;
  const ModelConfig a = parse_hf_config(four, "").model, b = parse_hf_config(five, "").model;
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.rope_scaling.rope_type, RopeType::llama3);
  EXPECT_EQ(a.rope_scaling.factor, 8.0);
  EXPECT_EQ(a.rope_theta, 1e6);
}

TEST(HuggingFace, AFolderThatDoesNotFitItsConfigIsRefused) {
  const ScratchFolder folder;
  const auto refused = [&](const HfModel& model) {
    model.write(folder.path());
    return error_of([&] { PretrainedFolder(folder.path()).check_tied(); });
  };
  HfModel model = hf_llama("llama", true);
  EXPECT_EQ(refused(model), "");
  model.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {3}});
  EXPECT_EQ(refused(model), "");  // of older versions
  model.tensors.push_back({"lm_head.weight", {61, 24}});
  expect_said(refused(model), "lm_head.weight is not model.embed_tokens.weight");
  model = hf_llama("llama", true);
  model.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", {24}});
  model.tensors[3].shape = {24, 12};
  model.tensors.erase(model.tensors.begin() + 1);
  const std::string why = refused(model);
  expect_said(why, "model.layers.0.self_attn.q_proj.bias is no weight of the model");
  expect_said(why, "model.layers.0.input_layernorm.weight");
  expect_said(why, "has the shape [24, 12], config.json asks for [12, 24]");
  // A bare model: without the prefix.
  model = hf_gpt2();
  for (auto& item : model.tensors) item.name = item.name.substr(std::string("transformer.").size());
  EXPECT_EQ(refused(model), "");
}

TEST(HuggingFace, OnlyWhatWasWrittenSoIsReplaced) {
  const ScratchFolder folder;
  hf_gpt2().write(folder.path() / "in");
  import_hf(folder.path() / "in", folder.path() / "triax", {}, false);
  expect_said(error_of([&] { import_hf(folder.path() / "in", folder.path() / "triax", {}, false); }),
              "is there already");
  import_hf(folder.path() / "in", folder.path() / "triax", {}, true);
  const CheckpointInfo info = read_manifest(folder.path() / "triax");
  fs::create_directories(folder.path() / "mine");
  write_content(folder.path() / "mine/thesis.txt", "x");
  HfExportOptions force;
  force.force = true;
  expect_said(error_of([&] { export_hf(info, folder.path() / "mine", force); }), "holds no config.json");
  export_hf(info, folder.path() / "out");
  expect_said(error_of([&] { export_hf(info, folder.path() / "out"); }), "is there already");
  export_hf(info, folder.path() / "out", force);
  size_t there = 0;  // in, triax, mine, out: no temporary folder stays
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++there;
  EXPECT_EQ(there, 4U);
}

TEST(HuggingFace, TheJobTakesItsModelFromTheFolder) {
  const ScratchFolder folder;
  HfModel model = hf_llama("qwen2", false);
  model.config["rope_scaling"] = llama3_scaling();
  model.write(folder.path() / "in");
  write_content(folder.path() / "corpus.txt", std::string(1000, 'x'));
  const std::string path = (folder.path() / "job.yaml").string();
  const auto load = [&](const std::string& keys) {
    write_content(path, "output_dir: " + (folder.path() / "run").string() +
                            "\nmodel: {from: " + (folder.path() / "in").string() + keys + R"(}
training: {steps: 1, global_batch_size: 2, micro_batch_size: 1, sequence_length: 8}
data: {train: [{path: )" + (folder.path() / "corpus.txt").string() +
                            "}]}\n");
    std::vector<std::string> problems;
    const RunConfig config = load_job({path}, {}, {0, 4}, problems);
    std::string all;
    for (const std::string& p : problems)
      if (p.find("read as bytes") == std::string::npos && p.find("data.tokenizer") == std::string::npos)
        all += p + "\n";  // a vocabulary of 61
    return std::pair{config, all};
  };
  const auto [job, none] = load(", hidden_dropout: 0.25, initializer_range: 0.1");
  EXPECT_EQ(none, "");
  ModelConfig expected = read_hf_config(folder.path() / "in").model;
  expected.from = (folder.path() / "in").string();
  expected.hidden_dropout = 0.25;
  expected.initializer_range = 0.1;
  EXPECT_EQ(job.model, expected);
  EXPECT_TRUE(job.model.qkv_bias);
  EXPECT_EQ(config_from_yaml(to_yaml(job), "").model, expected);
  EXPECT_EQ(load(", hidden_size: 24, tie_word_embeddings: false").second, "");
  const std::string why = load(", hidden_size: 32, rope_scaling: {factor: 4}").second;
  expect_said(why, "model.hidden_size: 32 is 24 there");
  expect_said(why, "model.rope_scaling.factor: 4.0 is 8.0 there");
  fs::rename(folder.path() / "in", folder.path() / "gone");
  const std::string missing = load("").second;
  expect_said(missing, "no such folder");
  EXPECT_EQ(missing.find("vocab_size: missing"), std::string::npos) << missing;
}

TEST(HuggingFace, SizesOfFiles) {
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_size("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(parse_size("123456789012"), 123456789012);
  for (const char* wrong : {"", "GB", "0", "5 GB", "5gb", "1.5GB", "-1"})
    expect_said(error_of([&] { parse_size(wrong); }), "is no size of a file");
}

TEST(HuggingFace, AnImportIsEvaluatedInTheFoldersWindows) {
  const ScratchFolder folder;
  HfModel longer = hf_llama("llama", false);
  longer.config["max_position_embeddings"] = 4096;
  const auto window = [](const fs::path& path) {
    return inference_config(open_model(path.string()), {}, {}).training.sequence_length;
  };
  for (const auto& [name, model, tokens] : {std::tuple{"short", hf_gpt2(), 16}, {"long", longer, 1024}}) {
    const fs::path in = folder.path() / name, imported = folder.path() / (std::string(name) + "-triax");
    model.write(in);
    import_hf(in, imported, {}, false);
    EXPECT_EQ(window(in), tokens);
    EXPECT_EQ(window(imported), tokens);
    import_hf(in, imported, {"training.sequence_length=8"}, true);
    EXPECT_EQ(window(imported), 8);
  }
}

// SentencePiece's tokenizer, converted: of a kind that Triax does not read.
constexpr const char* converted = R"({
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend"}, {"type": "Replace"}]},
  "model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}})";
const std::string tokenizers = TRIAX_SOURCE_DIR "/tests/golden/tokenizers/";

// Which tokenizer a model is given text with; or why none.
std::string tokenizer_of(const ModelSource& source, const std::string& wanted = "") {
  std::string name;
  const std::string why = error_of([&] {
    const auto files = tokenizer_for(source, inference_config(source, {}, {}), wanted)->files();
    name = files.empty() ? "bytes" : fs::path(files.front()).filename().string();
  });
  return why.empty() ? name : why;
}

TEST(HuggingFace, AnImportSaysThatItsTokenizerIsNotReadAndTakesNoTextWithoutOne) {
  const ScratchFolder folder;
  HfModel model = hf_gpt2();
  model.config["resid_pdrop"] = 0;
  model.config["vocab_size"] = 257;
  model.tensors[0].shape = {257, 24};
  const fs::path in = folder.path() / "in", imported = folder.path() / "triax";
  model.write(in);
  const auto notes = [&](const std::vector<std::string>& sets = {}) {
    std::string all;
    for (const std::string& note : import_hf(in, imported, sets, fs::exists(imported)).notes) all += note;
    return all;
  };
  expect_said(notes(), "neither a tokenizer.json nor a tokenizer.model");
  expect_said(tokenizer_of(open_model(imported)), "--tokenizer FILE");
  EXPECT_EQ(notes({"data.tokenizer=bytes"}), "");
  EXPECT_EQ(tokenizer_of(open_model(imported)), "bytes");
  write_content(in / "tokenizer.json", converted);
  expect_said(notes(), "normalizer Sequence is not supported");
  expect_said(notes(), "--tokenizer");
  expect_said(tokenizer_of(open_model(imported)), "normalizer Sequence is not supported");
  expect_said(tokenizer_of(open_model(imported)), "--tokenizer FILE");
  EXPECT_EQ(tokenizer_of(open_model(imported), "bytes"), "bytes");
  write_content(in / "tokenizer.json", content_of(tokenizers + "gpt2.json"));
  EXPECT_EQ(notes(), "");
  EXPECT_EQ(tokenizer_of(open_model(imported)), "tokenizer.json");
}

TEST(HuggingFace, TokensOfAnUnknownTokenizerAreNotTakenForBytes) {
  ModelSource source;
  source.checkpoint.emplace();
  source.config.model = parse_hf_config(hf_gpt2().config, "").model;
  source.config.training.sequence_length = 8;
  const auto trained_on = [&](const char* file, int64_t vocabulary) {
    source.config.data.train.assign(1, {});
    source.config.data.train[0].path = file;
    source.config.model.vocab_size = vocabulary;
    return tokenizer_of(source);
  };
  EXPECT_EQ(trained_on("a.txt", 1000), "bytes");
  EXPECT_EQ(trained_on("a.bin", 257), "bytes");
  EXPECT_EQ(trained_on("a.bin", 512), "bytes");
  for (const int64_t vocabulary : {61, 1000}) {
    expect_said(trained_on("a.bin", vocabulary), "does not say whose tokens");
    expect_said(trained_on("a.bin", vocabulary), "--tokenizer FILE");
    EXPECT_EQ(tokenizer_of(source, "bytes"), "bytes");
  }
}

TEST(HuggingFace, ATokenizerIsExportedByTheNameThatIsLookedFor) {
  const ScratchFolder folder;
  RunConfig job;
  job.model.vocab_size = 1 << 20;
  job.data.tokenizer = tokenizers + "gpt2.json";
  const HfTokenizer exported = hf_tokenizer(job);
  EXPECT_TRUE(exported.notes.empty());
  EXPECT_EQ(exported.files.count("gpt2.json"), 0u);
  for (const auto& [name, text] : exported.files) write_content(folder.path() / name, text);
  EXPECT_EQ(open_tokenizer(folder.path().string())->fingerprint(),
            open_tokenizer(job.data.tokenizer)->fingerprint());
}

// transformers makes Qwen2's own tokenizer for that architecture, whatever the folder holds.
TEST(HuggingFace, AnExportSaysWhereQwensTokenizerIsAnother) {
  RunConfig job;
  job.model.vocab_size = 1 << 20;
  job.data.train.assign(1, {});
  job.data.train[0].path = "a.txt";
  for (const bool qwen : {false, true}) {
    job.model.qkv_bias = qwen;
    for (const std::string& tokenizer : {std::string("bytes"), tokenizers + "gpt2.json",
                                         tokenizers + "llama3.json", tokenizers + "qwen2.json"}) {
      job.data.tokenizer = tokenizer;
      const HfTokenizer exported = hf_tokenizer(job);
      const bool another = qwen && tokenizer != tokenizers + "qwen2.json";
      ASSERT_EQ(exported.notes.size(), another ? 1u : 0u) << tokenizer;
      if (another) expect_said(exported.notes[0], "with PreTrainedTokenizerFast.from_pretrained(DIR)");
    }
  }
}

TEST(HuggingFace, AFolderWithTwoFormsOfATokenizerIsReadByTheOneThatIsUnderstood) {
  const ScratchFolder folder;
  const std::string path = folder.path().string();
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox " + std::to_string(i * i) + " jumps\n";
  write_content(folder.path() / "text.txt", text);
  SentencePieceTraining training;
  training.inputs = {path + "/text.txt"};
  training.output = path + "/tokenizer.model";
  training.vocab_size = 320;
  train_sentencepiece(training);
  const auto opened = [&] {
    std::string name;
    const std::string why =
        error_of([&] { name = fs::path(open_tokenizer(path)->files().front()).filename().string(); });
    return why.empty() ? name : why;
  };
  write_content(folder.path() / "tokenizer.json", converted);
  EXPECT_EQ(opened(), "tokenizer.model");
  write_content(folder.path() / "tokenizer.json", std::string(converted).substr(0, 90));
  expect_said(opened(), "damaged or cut off");
  write_content(folder.path() / "tokenizer.json", content_of(tokenizers + "gpt2.json"));
  EXPECT_EQ(opened(), "tokenizer.json");
  write_content(folder.path() / "tokenizer.json", converted);
  fs::remove(training.output);
  expect_said(opened(), "normalizer Sequence is not supported");
}

TEST(HuggingFace, TheDocumentedTableIsTheProgramsOwn) {
  expect_said(content_of(TRIAX_SOURCE_DIR "/docs/huggingface.md"), hf_key_table());
}

}  // namespace
}  // namespace triax::test
