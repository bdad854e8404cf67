#include "engine/legal.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/cuda_choices.h"
#include "kernels/cuda/limits.h"

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

// The multiples of `unit` next to `value`, "96 or 144".
std::string multiples_near(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return fmt::format("{}{}", below > 0 ? fmt::format("{} or ", below) : "", below + unit);
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
  void positions();
  void options();
  void gpu();

 private:
  bool sound(std::initializer_list<const char*> keys) const {
    return std::none_of(keys.begin(), keys.end(), [&](const char* k) { return report_.bad.count(k) != 0; });
  }
  template <class... Args>
  void broken(fmt::format_string<Args...> text, Args&&... args) {
    report_.problems.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  bool tensor_fits(int64_t t) const;
  std::string tensor_values() const;
  bool data_fits(int64_t d) const;
  std::string stage_values(int64_t ranks) const;
  std::string heads_values() const;
  std::string virtual_values() const;
  std::string sequence_values() const;

  const RunConfig& c;
  FieldReport& report_;
};

constexpr auto tensor_key = "parallel.tensor", pipeline_key = "parallel.pipeline", data_key = "parallel.data",
               heads_key = "model.num_attention_heads", kv_key = "model.num_key_value_heads",
               width_key = "model.intermediate_size", hidden_key = "model.hidden_size",
               layers_key = "model.num_hidden_layers", virtual_key = "parallel.virtual_stages",
               schedule_key = "parallel.schedule", global_key = "training.global_batch_size",
               micro_key = "training.micro_batch_size", sequence_key = "training.sequence_length",
               architecture_key = "model.architecture", positions_key = "model.max_position_embeddings";

bool tensor_fits_kv(int64_t tensor, int64_t kv) {
  return kv % tensor == 0 || (kv && tensor % kv == 0);
}

// Whether heads, key-value heads and width allow it at once, leaving out what is not known.
bool Rules::tensor_fits(int64_t t) const {
  const auto& m = c.model;
  return (!sound({heads_key}) || m.num_attention_heads % t == 0) &&
         (!sound({kv_key, heads_key}) || tensor_fits_kv(t, m.num_key_value_heads)) &&
         (!sound({width_key}) || m.intermediate_size % t == 0);
}

std::string Rules::tensor_values() const {
  const int64_t limit = sound({heads_key}) ? c.model.num_attention_heads : c.model.intermediate_size;
  return values(limit, [&](int64_t t) { return tensor_fits(t); });
}

// Whether the global batch divides among so many data ranks; unjudged where it is unknown or never does.
bool Rules::data_fits(int64_t d) const {
  const auto& t = c.training;
  return !sound({global_key, micro_key}) || t.global_batch_size % t.micro_batch_size != 0 ||
         t.global_batch_size % (t.micro_batch_size * d) == 0;
}

// tensor * pipeline that leave a data degree which the batch allows.
std::string Rules::stage_values(int64_t ranks) const {
  return values(ranks, [&](int64_t x) { return ranks % x == 0 && data_fits(ranks / x); });
}

// Numbers of heads that hidden size, architecture, key-value heads and tensor allow; without any, hidden
// sizes for the heads there are.
std::string Rules::heads_values() const {
  const auto& m = c.model;
  const bool kv = sound({kv_key}) && report_.has(kv_key), tensor = sound({tensor_key});
  const bool even = sound({architecture_key}) && m.architecture == Architecture::llama;
  const std::string heads = values(m.hidden_size, [&](int64_t x) {
    return m.hidden_size % x == 0 && (!even || m.hidden_size / x % 2 == 0) &&
           (!kv || x % m.num_key_value_heads == 0) && (!tensor || x % c.parallel.tensor == 0);
  });
  if (heads != "nothing") return "num_attention_heads can be " + heads;
  return "hidden_size can be " + multiples_near(m.hidden_size, (even ? 2 : 1) * m.num_attention_heads);
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
        p.tensor, p.pipeline, stage, from, ranks, stage, 2 * stage, 3 * stage, stage_values(ranks));
  } else if (stage * p.data > (1 << 20)) {
    broken("parallel: tensor * pipeline * data = {} * {} * {} = {} ranks; at most 1048576 can be numbered",
           p.tensor, p.pipeline, p.data, stage * p.data);
  } else if (ranks != 0 && stage * p.data != ranks) {
    const std::string fitting = ranks % stage == 0 && data_fits(ranks / stage)
                                    ? fmt::format("parallel.data can be {} or auto", ranks / stage)
                                    : fmt::format("tensor * pipeline can be {}", stage_values(ranks));
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
    broken("model.hidden_size: {} is not divisible by model.num_attention_heads: {}; {}", m.hidden_size, a,
           heads_values());
  else if (sound({hidden_key, architecture_key}) && m.architecture == Architecture::llama &&
           m.hidden_size / a % 2 != 0)
    broken(
        "model.hidden_size: {} / num_attention_heads: {} is a head size of {}, which must be even for llama "
        "(rotary positions turn pairs); {}",
        m.hidden_size, a, m.hidden_size / a, heads_values());
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

// Beside 1f1b, for interleaved: two or more chunks per rank, each of a layer at least.
std::string Rules::virtual_values() const {
  if (!sound({pipeline_key, layers_key})) return "virtual_stages can be 2 or more, or the schedule 1f1b";
  const int64_t most = c.model.num_hidden_layers / c.parallel.pipeline;
  if (most < 2) return "the schedule can be 1f1b";
  return fmt::format("virtual_stages can be {}, or the schedule 1f1b",
                     most == 2 ? "2" : fmt::format("2 to {}", most));
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
    broken("parallel.schedule: interleaved needs more than one chunk per rank, virtual_stages is 1; {}",
           virtual_values());
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
    broken(
        "training.global_batch_size: {} is not a multiple of micro_batch_size * parallel.data = {} * {} = "
        "{}; "
        "global_batch_size can be {}, or micro_batch_size * data can be {}",
        t.global_batch_size, t.micro_batch_size, data, per_turn,
        multiples_near(t.global_batch_size, per_turn),
        values(t.global_batch_size, [&](int64_t x) { return t.global_batch_size % x == 0; }));
    return;
  }
  const int64_t micro_batches = t.global_batch_size / per_turn;
  const bool chunks = sound({virtual_key, layers_key});
  if (sound({pipeline_key, schedule_key}) && c.parallel.schedule == "interleaved" &&
      micro_batches % c.parallel.pipeline != 0)
    broken(
        "parallel.schedule: interleaved needs the {} micro-batches (global_batch_size / (micro_batch_size * "
        "data)) divisible by parallel.pipeline: {}; pipeline can be {}",
        micro_batches, c.parallel.pipeline, values(micro_batches, [&](int64_t x) {
          return micro_batches % x == 0 &&
                 (!chunks || x * c.parallel.virtual_stages <= c.model.num_hidden_layers);
        }));
}

// For sequence_parallel: what divides the sequence and fits the model; without any, the sequence lengths that
// the tensor degree divides.
std::string Rules::sequence_values() const {
  const int64_t s = c.training.sequence_length, t = c.parallel.tensor;
  const std::string tensor = values(s, [&](int64_t x) { return x > 1 && s % x == 0 && tensor_fits(x); });
  if (tensor != "nothing") return "tensor can be " + tensor;
  const bool above = !sound({positions_key}) || (s / t + 1) * t <= c.model.max_position_embeddings;
  if (above) return "sequence_length can be " + multiples_near(s, t);
  return s < t ? "sequence_parallel can be false" : fmt::format("sequence_length can be {}", s / t * t);
}

void Rules::sequence() {
  const int64_t s = c.training.sequence_length, t = c.parallel.tensor;
  if (!sound({sequence_key})) return;
  if (sound({positions_key}) && s > c.model.max_position_embeddings)
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
        "needs; {}",
        s, t, sequence_values());
}

void Rules::positions() {
  const auto& m = c.model;
  const RopeScaling& r = m.rope_scaling;
  if (!sound({architecture_key, "model.rope_scaling", "model.rope_scaling.rope_type"})) return;
  const bool scaled = r.rope_type != RopeType::plain, llama3 = r.rope_type == RopeType::llama3;
  if (m.architecture == Architecture::gpt2) {
    if (scaled)
      broken(
          "model.rope_scaling.rope_type: gpt2 has no rotary positions; rope_type can be default, or "
          "architecture llama");
    if (m.qkv_bias)
      broken("model.qkv_bias: true belongs to llama, gpt2 has these biases always; qkv_bias can be false");
    return;
  }
  if (!scaled && r.factor != 1)
    broken(
        "model.rope_scaling.factor: {} belongs to rope_type linear or llama3, it is default; factor can be "
        "1, or rope_type linear or llama3",
        r.factor);
  if (llama3 && sound({"model.rope_scaling.low_freq_factor", "model.rope_scaling.high_freq_factor"}) &&
      r.low_freq_factor >= r.high_freq_factor)
    broken(
        "model.rope_scaling.low_freq_factor: {} is not below high_freq_factor: {}; low_freq_factor can be "
        "1.0 with a high_freq_factor of 4.0",
        r.low_freq_factor, r.high_freq_factor);
  if (llama3 && sound({"model.rope_scaling.original_max_position_embeddings"}) &&
      r.original_max_position_embeddings == 0)
    broken(
        "model.rope_scaling.original_max_position_embeddings: missing; llama3 needs the context, in tokens, "
        "of "
        "the unstretched positions (8192 for LLaMA 3.1)");
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
  if (c.parallel.transport != "auto" && sound({"parallel.transport", "training.device"}) &&
      c.training.device != "cuda")
    broken(
        "parallel.transport: {} is about what lies on GPUs, training.device is {}; transport can be auto, or "
        "device cuda",
        c.parallel.transport, c.training.device);
  if (c.training.partition_activations && sound({"training.recompute"}) && c.training.recompute != "full")
    broken(
        "training.partition_activations: true belongs to recompute full, recompute is {}; "
        "partition_activations can be false, or recompute full",
        c.training.recompute);
  const int64_t all_ranks = int64_t{p.tensor} * p.pipeline * p.data;
  if (c.training.cuda_graph == "on" && sound({"training.device"}) && c.training.device != "cuda")
    broken("training.cuda_graph: on belongs to device cuda, device is {}; cuda_graph can be auto or off",
           c.training.device);
  else if (c.training.cuda_graph == "on" && all_ranks > 1)
    broken(
        "training.cuda_graph: on belongs to one rank, since the hosts of {} take part in the messages "
        "between "
        "them; cuda_graph can be auto or off",
        all_ranks);
  const auto& k = c.checkpoint;
  if (sound({"checkpoint.load"}) && k.load != "all" && (k.resume == "auto" || k.resume == "never"))
    broken(
        "checkpoint.load: {} belongs to a checkpoint.resume that names a checkpoint, resume is {}; load can "
        "be "
        "all, or resume the path of a checkpoint",
        k.load, k.resume);
  const auto& traced = c.logging.trace_steps;
  if (sound({"logging.trace", "logging.trace_steps"}) && !traced.empty() && !c.logging.trace)
    broken(
        "logging.trace_steps: belongs to trace: true, trace is false; trace_steps can be [], or trace true");
  const auto late =
      std::find_if(traced.begin(), traced.end(), [&](int64_t s) { return s > c.training.steps; });
  if (sound({"training.steps", "logging.trace_steps"}) && late != traced.end())
    broken("logging.trace_steps: {} is after the last step; its steps can be 1 to {}", *late,
           c.training.steps);
  if (sound({"logging.straggler_factor"}) && c.logging.straggler_factor != 0 &&
      c.logging.straggler_factor <= 1)
    broken(
        "logging.straggler_factor: {:g} would call ranks slow that are not; straggler_factor can be above 1, "
        "as "
        "1.5, or 0 for never",
        c.logging.straggler_factor);
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

// What the GPU's kernels take. The CPU's take anything.
void Rules::gpu() {
  if (!sound({"training.device"}) || c.training.device != "cuda" || !sound({hidden_key})) return;
  const auto& m = c.model;
  const int64_t heads = m.num_attention_heads, tensor = c.parallel.tensor;
  const auto room = static_cast<int64_t>(cuda_workspace_bytes);
  if (m.hidden_size > cuda::norm_max_row)
    broken(
        "model.hidden_size: {} is more than the GPU's norms take, {}; hidden_size can be up to that, or "
        "device "
        "cpu",
        m.hidden_size, cuda::norm_max_row);
  if (sound({heads_key}) && m.hidden_size % heads == 0 && m.hidden_size / heads > cuda::attention_max_head)
    broken(
        "model.num_attention_heads: {} of hidden_size {} have {} elements each, and the GPU's attention "
        "takes "
        "up to {}; num_attention_heads can be {}, or device cpu",
        heads, m.hidden_size, m.hidden_size / heads, cuda::attention_max_head,
        values(m.hidden_size, [&](int64_t x) {
          return m.hidden_size % x == 0 && m.hidden_size / x <= cuda::attention_max_head;
        }));
  if (!sound({tensor_key}) || tensor == 0) return;
  if (sound({heads_key, micro_key, sequence_key}) && heads % tensor == 0) {
    const int64_t sequence_bytes =
        c.training.sequence_length * (heads / tensor) * static_cast<int64_t>(cuda::attention_bytes);
    if (c.training.micro_batch_size * sequence_bytes > room)
      broken(
          "training.micro_batch_size: {} sequences of {} tokens with {} heads on a rank need {} bytes of the "
          "{} that the GPU's attention has for its backward; {}, or more parallel.tensor, or device cpu",
          c.training.micro_batch_size, c.training.sequence_length, heads / tensor,
          c.training.micro_batch_size * sequence_bytes, room,
          sequence_bytes > room ? "a shorter sequence_length"
                                : fmt::format("micro_batch_size can be 1 to {}", room / sequence_bytes));
  }
  const int64_t most_rows = room / static_cast<int64_t>(cuda::embedding_row_bytes);
  if (sound({"model.vocab_size"}) && (m.vocab_size + tensor - 1) / tensor > most_rows)
    broken(
        "model.vocab_size: {} over parallel.tensor {} is more than the {} rows per rank that the GPU's "
        "gradient of the embedding takes; vocab_size can be up to {}, tensor {} or more, or device cpu",
        m.vocab_size, tensor, most_rows, most_rows * tensor, (m.vocab_size + most_rows - 1) / most_rows);
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
  rules.positions();
  rules.options();
  rules.gpu();
}

}  // namespace triax
