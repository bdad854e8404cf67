// Models of Hugging Face through the program: against transformers and PyTorch, and in little memory.

#include <nlohmann/json.hpp>

#include "job_runs.h"
#include "support/hf_folder.h"
#include "support/python.h"

namespace triax::test {
namespace {

class HuggingFaceJob : public JobRuns {
 protected:
  HuggingFaceJob()
      : JobRuns(R"(
training: {steps: 2, global_batch_size: 4, micro_batch_size: 1, sequence_length: 16, threads: 1}
data: {train: [{path: corpus.txt}]}
optimizer: {lr: 1.0e-3}
lr_schedule: {name: constant, warmup_steps: 0}
parallel: {tensor: 2, pipeline: 2, data: 1}
checkpoint: {interval: 1}
logging: {tensorboard: false}
debug: {dump_gradients_at: [1], dump_batches_at: [1, 2]}
)") {}
  /// Runs a command line of the shell; the output is in <dir>/shell.out.
  int shell(const std::string& line) const {
    const int status =
        std::system(("cd " + dir_.string() + " && { " + line + "; } > shell.out 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  }
  std::string said() const { return output("shell"); }
  static std::string program() { return TRIAX_BINARY_DIR "/triax "; }
};

using FullHuggingFace = HuggingFaceJob;

TEST_F(FullHuggingFace, TransformersAndPyTorchAgreeInBothDirections) {
  std::string why;
  const std::string python = python_with("torch transformers safetensors h5py numpy pyyaml", &why);
  if (python.empty()) GTEST_SKIP() << why;
  const std::string script =
      "HF_HUB_OFFLINE=1 " + python + " " TRIAX_SOURCE_DIR "/tests/launch/huggingface.py ";
  ASSERT_EQ(shell(script + "make " + dir_.string()), 0) << said();
  for (const std::string kind : {"gpt2", "gpt2-untied", "llama", "llama-tied", "llama3", "qwen2"}) {
    ASSERT_EQ(triax(kind + "/run", "--set model.from=" + kind + "/model"), 0) << output(kind + "/run");
    const std::string commands =
        program() + "checkpoint export " + kind + "/run/checkpoints/step-00000001 " + kind + "/out && " +
        program() + "checkpoint export " + kind + "/run/checkpoints/step-00000001 " + kind +
        "/half --dtype bf16 --max-shard-size 50KB && " + program() + "checkpoint import " + kind + "/model " +
        kind + "/imported && " + program() + "checkpoint export " + kind + "/imported " + kind + "/back";
    ASSERT_EQ(shell(commands), 0) << said();
  }
  ASSERT_EQ(shell(script + "check " + dir_.string()), 0) << said();
  EXPECT_NE(said().find("all equal"), std::string::npos) << said();
}

// A model of 200 MiB goes in and out through processes that may have a third of it as data.
TEST_F(FullHuggingFace, ImportAndExportTakeLittleMemory) {
  nlohmann::json config{{"model_type", "gpt2"}, {"vocab_size", 40000}, {"n_positions", 8},
                        {"n_embd", 1024},       {"n_layer", 1},        {"n_head", 8}};
  std::filesystem::create_directories(dir_ / "model");
  write_content(dir_ / "model/config.json", config.dump());
  const std::string at = "transformer.h.0.";
  write_tensors(dir_ / "model/model.safetensors", {{"transformer.wte.weight", {40000, 1024}},
                                                   {"transformer.wpe.weight", {8, 1024}},
                                                   {at + "ln_1.weight", {1024}},
                                                   {at + "ln_1.bias", {1024}},
                                                   {at + "attn.c_attn.weight", {1024, 3072}},
                                                   {at + "attn.c_attn.bias", {3072}},
                                                   {at + "attn.c_proj.weight", {1024, 1024}},
                                                   {at + "attn.c_proj.bias", {1024}},
                                                   {at + "ln_2.weight", {1024}},
                                                   {at + "ln_2.bias", {1024}},
                                                   {at + "mlp.c_fc.weight", {1024, 4096}},
                                                   {at + "mlp.c_fc.bias", {4096}},
                                                   {at + "mlp.c_proj.weight", {4096, 1024}},
                                                   {at + "mlp.c_proj.bias", {1024}},
                                                   {"transformer.ln_f.weight", {1024}},
                                                   {"transformer.ln_f.bias", {1024}}});
  ASSERT_EQ(shell("ulimit -d 65536; " + program() + "checkpoint import model imported && " + program() +
                  "checkpoint export imported back && cmp model/model.safetensors back/model.safetensors"),
            0)
      << said();
}

// Without Python: a model's folder, and the checkpoint imported from it, start the same run on any grid; a
// run goes on without them.
TEST_F(HuggingFaceJob, AFolderAndItsImportStartTheSameRun) {
  nlohmann::json config{{"model_type", "qwen2"},       {"vocab_size", 257},
                        {"hidden_size", 24},           {"intermediate_size", 48},
                        {"num_hidden_layers", 2},      {"num_attention_heads", 4},
                        {"num_key_value_heads", 1},    {"rms_norm_eps", 1e-6},
                        {"tie_word_embeddings", true}, {"max_position_embeddings", 16}};
  std::filesystem::create_directories(dir_ / "model");
  write_content(dir_ / "model/config.json", config.dump());
  std::vector<SafeTensorsWriter::Item> items{{"model.embed_tokens.weight", {257, 24}},
                                             {"model.norm.weight", {24}}};
  for (const std::string at : {"model.layers.0.", "model.layers.1."})
    for (const auto& [name, shape] :
         std::vector<std::pair<std::string, std::vector<int64_t>>>{{"input_layernorm.weight", {24}},
                                                                   {"self_attn.q_proj.weight", {24, 24}},
                                                                   {"self_attn.q_proj.bias", {24}},
                                                                   {"self_attn.k_proj.weight", {6, 24}},
                                                                   {"self_attn.k_proj.bias", {6}},
                                                                   {"self_attn.v_proj.weight", {6, 24}},
                                                                   {"self_attn.v_proj.bias", {6}},
                                                                   {"self_attn.o_proj.weight", {24, 24}},
                                                                   {"post_attention_layernorm.weight", {24}},
                                                                   {"mlp.gate_proj.weight", {48, 24}},
                                                                   {"mlp.up_proj.weight", {48, 24}},
                                                                   {"mlp.down_proj.weight", {24, 48}}})
      items.push_back({at + name, shape});
  write_tensors(dir_ / "model/model.safetensors", items);
  ASSERT_EQ(shell(program() + "checkpoint import model imported"), 0) << said();

  const std::string one =
      " --set parallel.tensor=1 --set parallel.pipeline=1 --set checkpoint.save_initial=true";
  ASSERT_EQ(triax("a", "--set model.from=model" + one), 0) << output("a");
  ASSERT_EQ(triax("b", "--set model.from=model --set checkpoint.resume=imported" + one), 0) << output("b");
  EXPECT_EQ(tensors("a", 0), tensors("b", 0));
  EXPECT_EQ(metrics("a"), metrics("b"));
  EXPECT_NE(output("b").find("written by an import of"), std::string::npos) << output("b");
  EXPECT_EQ(output("b").find("mathematics"), std::string::npos) << output("b");
  ASSERT_EQ(triax("c", "--set model.from=model --set training.steps=1 --set checkpoint.save_initial=true"), 0)
      << output("c");
  EXPECT_EQ(tensors("c", 0), tensors("a", 0));

  // Another rope_theta than the import's is refused; the folder's own disagreement too.
  EXPECT_EQ(
      triax("d", "--set model.from=model --set model.rope_theta=500 --set checkpoint.resume=imported" + one),
      2);
  EXPECT_NE(output("d").find("model.rope_theta: 500.0 is 10000.0 there"), std::string::npos) << output("d");

  // The run goes on when the folder is gone, by the same command and from its own job.yaml.
  fs::rename(dir_ / "model", dir_ / "gone");
  ASSERT_EQ(triax("c", "--set model.from=model"), 0) << output("c");
  EXPECT_NEAR(metrics("c").at(2).first / metrics("a").at(2).first, 1.0, 1e-5);
  ASSERT_EQ(shell("cd c && " + program() + "train job.yaml --set training.steps=3"), 0) << said();
  EXPECT_EQ(triax("e", "--set model.from=model"), 2);
  EXPECT_NE(output("e").find("no such folder"), std::string::npos) << output("e");
}

}  // namespace
}  // namespace triax::test
