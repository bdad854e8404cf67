#pragma once

#include "engine/config.h"

namespace triax::test {

/// A job of seconds on one rank that any grid of up to 12 tensor ranks can take: odd vocabulary (rows are
/// padded on every tensor degree above 1), 12 heads (llama: one key-value head for all), four layers. Tests
/// set what they are about.
inline RunConfig small_job(Architecture architecture, int64_t steps) {
  RunConfig config;
  ModelConfig& m = config.model;
  m.architecture = architecture;
  m.vocab_size = 61;
  m.hidden_size = 48;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 12;
  m.num_key_value_heads = architecture == Architecture::llama ? 1 : 12;
  m.intermediate_size = 96;
  m.max_position_embeddings = 16;
  m.tie_word_embeddings = architecture == Architecture::gpt2;
  m.initializer_range = 0.1;
  config.training.steps = steps;
  config.training.global_batch_size = 12;
  config.training.micro_batch_size = 1;
  config.training.sequence_length = 12;
  config.optimizer.lr = 3e-3;
  config.lr_schedule.warmup_steps = 2;
  config.lr_schedule.decay_steps = steps;
  config.parallel = {};
  config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 1;
  return config;
}

}  // namespace triax::test
