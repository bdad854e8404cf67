#include "engine/legal.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace triax {

namespace {

// The numbers of 1 .. limit that fit, "1, 2, 3, 4, 6, 12"; the first dozen of many.
std::string values(int64_t limit, const std::function<bool(int64_t)>& fits) {
  std::string text;
  int count = 0;
  for (int64_t x = 1; x <= std::min<int64_t>(limit, 1 << 20); ++x) {
    if (!fits(x)) continue;
    if (++count > 12) return text + ", ...";
    text += (text.empty() ? "" : ", ") + std::to_string(x);
  }
  return text.empty() ? "nothing" : text;
}

// One report of broken rules; a rule counts only when all keys that it is about are sound.
class Rules {
 public:
  Rules(const RunConfig& config, FieldReport& report) : c(config), report_(report) {}

  void ranks(int ranks, const std::string& from);
  void tensor();
  void heads();
  void pipeline();
  void batch();
  void sequence();
  void options();

 private:
  bool sound(std::initializer_list<const char*> keys) const {
    return std::none_of(keys.begin(), keys.end(), [&](const char* k) { return report_.bad.count(k) != 0; });
  }
  template <class... Args>
  void broken(fmt::format_string<Args...> text, Args&&... args) {
    report_.problems.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  std::string tensor_values() const;

  const RunConfig& c;
  FieldReport& report_;
};

constexpr auto tensor_key = "parallel.tensor", pipeline_key = "parallel.pipeline", data_key = "parallel.data",
               heads_key = "model.num_attention_heads", kv_key = "model.num_key_value_heads",
               width_key = "model.intermediate_size", hidden_key = "model.hidden_size",
               layers_key = "model.num_hidden_layers", virtual_key = "parallel.virtual_stages",
               schedule_key = "parallel.schedule", global_key = "training.global_batch_size",
               micro_key = "training.micro_batch_size", sequence_key = "training.sequence_length",
               architecture_key = "model.architecture";

bool tensor_fits_kv(int64_t tensor, int64_t kv) {
  return kv % tensor == 0 || (kv && tensor % kv == 0);
}

// What fits heads, key-value heads and width at once, leaving out what is not known.
std::string Rules::tensor_values() const {
  const auto& m = c.model;
  const bool heads = sound({heads_key}), kv = sound({kv_key, heads_key}), width = sound({width_key});
  const int64_t limit = heads ? m.num_attention_heads : m.intermediate_size;
  return values(limit, [&](int64_t t) {
    return (!heads || m.num_attention_heads % t == 0) && (!kv || tensor_fits_kv(t, m.num_key_value_heads)) &&
           (!width || m.intermediate_size % t == 0);
  });
}

void Rules::ranks(int ranks, const std::string& from) {
  if (!sound({tensor_key, pipeline_key, data_key})) return;
  const auto& p = c.parallel;
  const int64_t stage = int64_t{p.tensor} * p.pipeline;
  if (p.data == 0) {  // auto, and the ranks do not divide
    broken(
        "parallel.data: auto needs ranks divisible by tensor * pipeline = {} * {} = {}, but {} gives {} "
        "ranks; "
        "ranks can be {}, {}, {}, ...; tensor * pipeline can be {}",
        p.tensor, p.pipeline, stage, from, ranks, stage, 2 * stage, 3 * stage,
        values(ranks, [&](int64_t x) { return ranks % x == 0; }));
  } else if (stage * p.data > (1 << 20)) {
    broken("parallel: tensor * pipeline * data = {} * {} * {} = {} ranks; at most 1048576 can be numbered",
           p.tensor, p.pipeline, p.data, stage * p.data);
  } else if (ranks != 0 && stage * p.data != ranks) {
    const std::string fitting = ranks % stage == 0
                                    ? fmt::format("parallel.data can be {} or auto", ranks / stage)
                                    : fmt::format("tensor * pipeline can be {}",
                                                  values(ranks, [&](int64_t x) { return ranks % x == 0; }));
    broken(
        "parallel: tensor * pipeline * data = {} * {} * {} = {} ranks, but {} gives {}; {}, or the number of "
        "ranks {}",
        p.tensor, p.pipeline, p.data, stage * p.data, from, ranks, fitting, stage * p.data);
  }
}

void Rules::tensor() {
  if (!sound({tensor_key})) return;
  const auto& m = c.model;
  const int64_t t = c.parallel.tensor;
  if (sound({heads_key}) && m.num_attention_heads % t != 0)
    broken("model.num_attention_heads: {} is not divisible by parallel.tensor: {}; tensor can be {}",
           m.num_attention_heads, t, tensor_values());
  if (sound({width_key}) && m.intermediate_size % t != 0)
    broken("model.intermediate_size: {} is not divisible by parallel.tensor: {}; tensor can be {}",
           m.intermediate_size, t, tensor_values());
  if (sound({kv_key, heads_key}) && report_.has(kv_key) && !tensor_fits_kv(t, m.num_key_value_heads))
    broken(
        "model.num_key_value_heads: {} is neither divisible by parallel.tensor: {} nor divides it; tensor "
        "can "
        "be {}",
        m.num_key_value_heads, t, tensor_values());
}

void Rules::heads() {
  const auto& m = c.model;
  if (!sound({heads_key})) return;
  const int64_t a = m.num_attention_heads;
  if (sound({hidden_key}) && m.hidden_size % a != 0)
    broken(
        "model.hidden_size: {} is not divisible by model.num_attention_heads: {}; num_attention_heads can be "
        "{}",
        m.hidden_size, a, values(m.hidden_size, [&](int64_t x) { return m.hidden_size % x == 0; }));
  else if (sound({hidden_key, architecture_key}) && m.architecture == Architecture::llama &&
           m.hidden_size / a % 2 != 0)
    broken(
        "model.hidden_size: {} / num_attention_heads: {} is a head size of {}, which must be even for llama "
        "(rotary positions turn pairs); num_attention_heads can be {}",
        m.hidden_size, a, m.hidden_size / a, values(m.hidden_size, [&](int64_t x) {
          return m.hidden_size % x == 0 && m.hidden_size / x % 2 == 0;
        }));
  if (!sound({kv_key, architecture_key}) || !report_.has(kv_key)) return;
  const int64_t kv = m.num_key_value_heads;
  if (m.architecture == Architecture::gpt2 && kv != a)
    broken(
        "model.num_key_value_heads: {} is not model.num_attention_heads: {}, and gpt2 has no grouped heads; "
        "num_key_value_heads can be {}, or architecture llama",
        kv, a, a);
  else if (a % kv != 0)
    broken(
        "model.num_attention_heads: {} is not divisible by model.num_key_value_heads: {}; "
        "num_key_value_heads "
        "can be {}",
        a, kv, values(a, [&](int64_t x) { return a % x == 0; }));
}

void Rules::pipeline() {
  const auto& p = c.parallel;
  const int64_t layers = c.model.num_hidden_layers, chunks = int64_t{p.pipeline} * p.virtual_stages;
  if (sound({pipeline_key, virtual_key, layers_key}) && chunks > layers) {
    if (p.virtual_stages == 1)
      broken(
          "parallel.pipeline: {} stages are more than model.num_hidden_layers: {}; pipeline can be 1 to {}",
          p.pipeline, layers, layers);
    else
      broken(
          "parallel.pipeline: {} * virtual_stages: {} = {} chunks are more than model.num_hidden_layers: {}; "
          "pipeline * virtual_stages can be at most {}",
          p.pipeline, p.virtual_stages, chunks, layers, layers);
  }
  if (!sound({schedule_key, virtual_key})) return;
  if (p.schedule == "interleaved" && p.virtual_stages == 1)
    broken(
        "parallel.schedule: interleaved needs more than one chunk per rank, virtual_stages is 1; "
        "virtual_stages can be 2 or more, or the schedule 1f1b");
  if (p.schedule != "interleaved" && p.virtual_stages > 1)
    broken(
        "parallel.virtual_stages: {} belongs to schedule interleaved, the schedule is {}; virtual_stages can "
        "be 1, or the schedule interleaved",
        p.virtual_stages, p.schedule);
}

void Rules::batch() {
  if (!sound({global_key, micro_key, data_key}) || c.parallel.data == 0) return;
  const auto& t = c.training;
  const int64_t data = c.parallel.data, per_turn = t.micro_batch_size * data;
  if (t.global_batch_size % per_turn != 0) {
    const int64_t below = t.global_batch_size / per_turn * per_turn;
    broken(
        "training.global_batch_size: {} is not a multiple of micro_batch_size * parallel.data = {} * {} = "
        "{}; "
        "global_batch_size can be {}{}, or micro_batch_size * data can be {}",
        t.global_batch_size, t.micro_batch_size, data, per_turn,
        below > 0 ? fmt::format("{} or ", below) : "", below + per_turn,
        values(t.global_batch_size, [&](int64_t x) { return t.global_batch_size % x == 0; }));
    return;
  }
  const int64_t micro_batches = t.global_batch_size / per_turn;
  if (sound({pipeline_key, schedule_key}) && c.parallel.schedule == "interleaved" &&
      micro_batches % c.parallel.pipeline != 0)
    broken(
        "parallel.schedule: interleaved needs the {} micro-batches (global_batch_size / (micro_batch_size * "
        "data)) divisible by parallel.pipeline: {}; pipeline can be {}",
        micro_batches, c.parallel.pipeline,
        values(micro_batches, [&](int64_t x) { return micro_batches % x == 0; }));
}

void Rules::sequence() {
  const int64_t s = c.training.sequence_length, t = c.parallel.tensor;
  if (!sound({sequence_key})) return;
  if (sound({"model.max_position_embeddings"}) && s > c.model.max_position_embeddings)
    broken(
        "training.sequence_length: {} is more than model.max_position_embeddings: {}; sequence_length can be "
        "1 "
        "to {}",
        s, c.model.max_position_embeddings, c.model.max_position_embeddings);
  if (!c.parallel.sequence_parallel || !sound({tensor_key})) return;
  if (t == 1)
    broken(
        "parallel.sequence_parallel: true needs parallel.tensor above 1, it is 1; sequence_parallel can be "
        "false");
  else if (s % t != 0)
    broken(
        "training.sequence_length: {} is not divisible by parallel.tensor: {}, which sequence_parallel "
        "needs; "
        "tensor can be {}",
        s, t, values(s, [&](int64_t x) { return x > 1 && s % x == 0; }));
}

void Rules::options() {
  const auto& p = c.parallel;
  if (sound({"parallel.zero_shard_ranks", data_key}) && p.zero_shard_ranks && p.data &&
      p.data % p.zero_shard_ranks != 0)
    broken(
        "parallel.zero_shard_ranks: {} does not divide parallel.data: {}; zero_shard_ranks can be auto, {}",
        p.zero_shard_ranks, p.data, values(p.data, [&](int64_t x) { return p.data % x == 0; }));
  if (sound({"parallel.zero_shard_ranks", "parallel.zero_stage"}) && p.zero_shard_ranks && p.zero_stage == 0)
    broken(
        "parallel.zero_shard_ranks: {} belongs to zero_stage 1, zero_stage is 0; zero_shard_ranks can be "
        "auto, "
        "or zero_stage 1",
        p.zero_shard_ranks);
  if (c.training.partition_activations && sound({"training.recompute"}) && c.training.recompute != "full")
    broken(
        "training.partition_activations: true belongs to recompute full, recompute is {}; "
        "partition_activations can be false, or recompute full",
        c.training.recompute);
  const auto& k = c.checkpoint;
  if (sound({"checkpoint.load"}) && k.load != "all" && (k.resume == "auto" || k.resume == "never"))
    broken(
        "checkpoint.load: {} belongs to a checkpoint.resume that names a checkpoint, resume is {}; load can "
        "be "
        "all, or resume the path of a checkpoint",
        k.load, k.resume);
  const auto& lr = c.lr_schedule;
  if (sound({"lr_schedule.name", "lr_schedule.decay_start"}) && lr.name != "wsd" &&
      report_.has("lr_schedule.decay_start"))
    broken(
        "lr_schedule.decay_start: {} belongs to the schedule wsd, the schedule is {}; leave decay_start out, "
        "or "
        "name wsd",
        lr.decay_start, lr.name);
  if (sound({"lr_schedule.name", "lr_schedule.decay_start", "lr_schedule.decay_steps", "training.steps"}) &&
      lr.name == "wsd" && lr.decay_start > lr.decay_steps)
    broken("lr_schedule.decay_start: {} is after decay_steps: {}; decay_start can be 1 to {}", lr.decay_start,
           lr.decay_steps, lr.decay_steps);
}

}  // namespace

void check_legal(const RunConfig& config, int ranks, const std::string& ranks_from, FieldReport& report) {
  Rules rules(config, report);
  rules.ranks(ranks, ranks_from);
  rules.tensor();
  rules.heads();
  rules.pipeline();
  rules.batch();
  rules.sequence();
  rules.options();
}

}  // namespace triax
