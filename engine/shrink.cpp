#include "engine/shrink.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace triax {

namespace {

constexpr int64_t steps = 10;

// At least `least`, at most the job's own, a multiple of `unit` as that is.
int64_t about(double wanted, int64_t unit, int64_t own) {
  const int64_t units = std::llround(wanted / static_cast<double>(unit));
  return std::clamp<int64_t>(units, 1, std::max<int64_t>(own / unit, 1)) * unit;
}

void shrink_heads(ModelConfig& small, const ModelConfig& m, int64_t tensor) {
  // Two heads per key-value head and two of those per rank where the job has as many: one would hide a mix-up
  // among them. Fewer key-value heads than ranks stay as they are: they decide who holds copies.
  const int64_t heads = m.num_attention_heads, kv = m.num_key_value_heads;
  if (kv >= tensor) {
    small.num_key_value_heads = tensor * std::min<int64_t>(kv / tensor, 2);
    small.num_attention_heads = small.num_key_value_heads * std::min<int64_t>(heads / kv, 2);
  } else {
    small.num_attention_heads = tensor * std::min<int64_t>(heads / tensor, 2);
  }
  const int64_t head_size = std::min<int64_t>(m.hidden_size / heads, 8);
  small.hidden_size = small.num_attention_heads * head_size;
  const double ratio = static_cast<double>(m.intermediate_size) / static_cast<double>(m.hidden_size);
  small.intermediate_size =
      about(ratio * static_cast<double>(small.hidden_size), tensor, m.intermediate_size);
}

// A bucket that is as large beside the vocabulary's table as the job's: the table fills a bucket by itself
// about where it does there.
int64_t bucket_beside_table(const RunConfig& small, const RunConfig& job) {
  const auto table = [](const ModelConfig& m) {
    return static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size);
  };
  const int64_t own = job.parallel.reduce_bucket_size;
  return about(table(small.model) / table(job.model) * static_cast<double>(own), 1, own);
}

}  // namespace

RunConfig shrink(const RunConfig& job) {
  RunConfig out = job;
  const ModelConfig& m = job.model;
  const ParallelConfig& p = job.parallel;
  const int64_t tensor = p.tensor;
  out.name = job.name + ", shrunk";
  out.model.from.clear();  // another shape: initial values
  shrink_heads(out.model, m, tensor);
  // As many rows left over as the job's vocabulary leaves: the last ranks hold padding exactly where they do
  // in the job.
  out.model.vocab_size = std::min(m.vocab_size, 16 * tensor + m.vocab_size % tensor);
  const int64_t chunks = int64_t{p.pipeline} * p.virtual_stages;
  const int64_t left = m.num_hidden_layers % chunks;
  out.model.num_hidden_layers = left ? chunks + left : std::min(m.num_hidden_layers, 2 * chunks);

  TrainingConfig& t = out.training;
  const int64_t s = job.training.sequence_length;
  const int64_t unit = p.sequence_parallel ? tensor : 1;
  t.sequence_length = std::min(s, (12 + unit - 1) / unit * unit);
  out.model.max_position_embeddings =
      std::min(m.max_position_embeddings, t.sequence_length + (m.max_position_embeddings > s ? 4 : 0));
  const int64_t micro_batches = t.global_batch_size / (t.micro_batch_size * p.data);
  t.micro_batch_size = std::min<int64_t>(t.micro_batch_size, 2);
  const int64_t fewer =
      std::min<int64_t>(micro_batches, 2 * p.pipeline + (micro_batches % p.pipeline ? 1 : 0));
  t.global_batch_size = fewer * t.micro_batch_size * p.data;
  // What lies beside a tied table matters where activations do (ParamStore::lendable). Else the job's own
  // bucket holds several layers, as it mostly does there; the table shrinks more than they.
  if (m.tie_word_embeddings && fewer == 1) out.parallel.reduce_bucket_size = bucket_beside_table(out, job);
  t.steps = steps;
  t.threads = 1;
  out.optimizer.lr = std::min(out.optimizer.lr, 3e-3);
  out.lr_schedule = {};
  out.lr_schedule.name = "constant";
  out.lr_schedule.warmup_steps = 4;
  out.debug = {};
  out.debug.check_collectives = true;
  return out;
}

RunConfig on_one_rank(const RunConfig& job) {
  RunConfig one = job;
  one.parallel = {};
  one.parallel.tensor = one.parallel.pipeline = one.parallel.data = 1;
  // Cut otherwise than the job's batch, as what is computed may depend on there being one micro-batch.
  const int64_t all = one.training.global_batch_size;
  const bool once = all == job.training.micro_batch_size * job.parallel.data;
  one.training.micro_batch_size = !once ? all : all % 2 == 0 ? all / 2 : 1;
  if (once && all == 1) one.parallel.schedule = "zb-h1";  // can't be cut; its activations lie elsewhere
  one.training.recompute = "none";
  one.training.partition_activations = false;
  return one;
}

}  // namespace triax
