// What each rank sends per step, counted by the recorders of a real step, is the sum of the published
// formulas (Shoeybi et al. 2019, Narayanan et al. 2021, Korthikanti et al. 2022) and of deviations that are
// named: no byte is left unexplained. Ring convention, fp32.

#include <gtest/gtest.h>

#include "engine/job.h"
#include "support/counted.h"

namespace triax::test {
namespace {

constexpr double fp32 = 4;  // bytes per element of what is fp32 in every precision

RunConfig job(Architecture architecture, int tensor, int pipeline = 1, int data = 1) {
  RunConfig config;
  const bool llama = architecture == Architecture::llama;
  config.model = {.architecture = architecture,
                  .vocab_size = 61,  // padded to a multiple of t rows
                  .hidden_size = 24,
                  .num_hidden_layers = 4,
                  .num_attention_heads = 4,
                  .num_key_value_heads = llama ? 1 : 4,
                  .intermediate_size = 40,
                  .max_position_embeddings = 10,
                  .tie_word_embeddings = !llama};
  config.training.global_batch_size = 6 * data;
  config.training.micro_batch_size = 3;
  config.training.sequence_length = 8;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  return config;
}

/// One reason to send something.
struct Line {
  const char* reason;
  const char* group;
  CommOp op;
  double bytes;
};

// The letters of the paper.
struct Letters {
  explicit Letters(const RunConfig& c, int rank)
      : t(c.parallel.tensor),
        share((t - 1) / t),
        s(static_cast<double>(c.training.sequence_length)),
        b(static_cast<double>(c.training.micro_batch_size)),
        h(static_cast<double>(c.model.hidden_size)),
        beta(c.training.precision == "bf16" ? 2 : 4),
        sbh(s * b * h * beta),
        m(static_cast<double>(c.training.global_batch_size) / (b * c.parallel.data)),
        stage(grid_of(c).coordinate(rank, "pp")),
        first(stage == 0),
        last(stage == c.parallel.pipeline - 1) {
    const std::vector<int> begin = split_layers(c.model, c.parallel.pipeline);
    layers = begin[static_cast<size_t>(stage) + 1] - begin[static_cast<size_t>(stage)];
  }
  double t, share, s, b, h, beta, sbh, m;  // beta: bytes per weight and activation
  int stage;
  bool first, last;
  double layers = 0;
};

// Tensor axis without sequence parallelism: 8 (t-1)/t sbh per layer and micro-batch.
void add_tensor(const RunConfig& c, const Letters& x, std::vector<Line>& out) {
  const double sum = 2 * x.share * x.sbh;  // an all-reduce of sbh
  out.push_back({"layers, forward and backward", "tp", CommOp::all_reduce, x.m * x.layers * 4 * sum});
  if (x.first) out.push_back({"embedding", "tp", CommOp::all_reduce, x.m * sum});
  if (x.last) out.push_back({"head's dX", "tp", CommOp::all_reduce, x.m * sum});
  if (c.training.recompute == "full")
    out.push_back({"attention's output, again", "tp", CommOp::all_reduce, x.m * x.layers * sum});
  if (c.training.partition_activations)
    out.push_back({"kept inputs put together", "tp", CommOp::all_gather, x.m * x.layers * x.share * x.sbh});
}

// With it: 10 (t-1)/t, two of which gather inputs again.
void add_sequence(const RunConfig& c, const Letters& x, std::vector<Line>& out) {
  const double part = x.share * x.sbh, per_layer = x.m * x.layers * part;  // one gather or reduce-scatter
  out.push_back({"inputs, forward", "tp", CommOp::all_gather, 2 * per_layer});
  out.push_back({"outputs, forward", "tp", CommOp::reduce_scatter, 2 * per_layer});
  out.push_back({"output gradients, backward", "tp", CommOp::all_gather, 2 * per_layer});
  out.push_back({"input gradients, backward", "tp", CommOp::reduce_scatter, 2 * per_layer});
  out.push_back({"inputs again, for dW", "tp", CommOp::all_gather, 2 * per_layer});
  if (c.parallel.schedule == "zb-h1" && c.training.recompute != "full")
    out.push_back({"output gradients again, for a dW of its own", "tp", CommOp::all_gather, 2 * per_layer});
  if (c.training.recompute == "full") {
    out.push_back({"inputs, forward again", "tp", CommOp::all_gather, 2 * per_layer});
    out.push_back({"attention's output, again", "tp", CommOp::reduce_scatter, per_layer});
  }
  if (x.first) {
    out.push_back({"embedding", "tp", CommOp::reduce_scatter, x.m * part});
    out.push_back({"embedding's dY", "tp", CommOp::all_gather, x.m * part});
  }
  if (x.last) {
    out.push_back({"head's input", "tp", CommOp::all_gather, x.m * part});
    out.push_back({"head's dX", "tp", CommOp::reduce_scatter, x.m * part});
  }
  const bool gpt2 = c.model.architecture == Architecture::gpt2;
  const double vectors = x.layers * (gpt2 ? 6 : 2) + x.last * (gpt2 ? 2 : 1) +
                         (x.first && gpt2 ? static_cast<double>(c.model.max_position_embeddings) : 0);
  out.push_back({"gradients of norms, row biases and positions", "tp", CommOp::all_reduce,
                 2 * x.share * vectors * x.h * fp32});
}

std::vector<Line> expected(const RunConfig& c, int rank, double elements) {
  const Letters x(c, rank);
  const ParallelConfig& p = c.parallel;
  std::vector<Line> out;
  if (p.sequence_parallel)
    add_sequence(c, x, out);
  else
    add_tensor(c, x, out);
  if (x.last)
    out.push_back({"cross-entropy: three sums of sb", "tp", CommOp::all_reduce,
                   3 * 2 * x.share * x.m * x.s * x.b * fp32});
  const double head = x.h / static_cast<double>(c.model.num_attention_heads);
  const double copies = std::max(1.0, x.t / static_cast<double>(c.model.num_key_value_heads));
  out.push_back({"gradients of copied key and value heads", "tp-copies", CommOp::all_reduce,
                 2 * (copies - 1) / copies * x.layers * 2 * head * x.h * fp32});

  const double message = x.m * x.sbh / x.t;  // scattered, or cut by sequence parallelism
  if (!x.last) out.push_back({"outputs", "pp", CommOp::send, message});
  if (!x.first) out.push_back({"gradients", "pp-back", CommOp::send, message});
  if (!p.sequence_parallel) {
    if (!x.first)
      out.push_back({"scattered inputs put together", "tp", CommOp::all_gather, x.m * x.share * x.sbh});
    if (!x.last)
      out.push_back({"scattered gradients put together", "tp", CommOp::all_gather, x.m * x.share * x.sbh});
  }
  if (c.model.tie_word_embeddings && p.pipeline > 1 && (x.first || x.last)) {
    const double rows = std::ceil(static_cast<double>(c.model.vocab_size) / x.t);  // padding included
    out.push_back({"tied gradient", "tied", CommOp::all_reduce, rows * x.h * fp32});
  }
  const double d = p.data, ranks = x.t * d * p.pipeline;
  out.push_back({"gradients", "dp", CommOp::reduce_scatter, (d - 1) / d * elements * fp32});
  out.push_back({"weights", "dp", CommOp::all_gather, (d - 1) / d * elements * x.beta});
  const int sums = p.data > 1 ? 3 : 2;  // the data ranks' own norms, of the gradient noise scale
  const double scalars = sums * ExactSum::word_count + static_cast<double>(std::tuple_size_v<Votes>);
  out.push_back(
      {"loss, norms and votes", "world", CommOp::all_reduce, 2 * (ranks - 1) / ranks * scalars * 8});
  return out;
}

void expect_explained(const RunConfig& config) {
  const std::vector<Counted> counted = count_step(config);
  for (size_t rank = 0; rank < counted.size(); ++rank) {
    std::map<std::pair<std::string, CommOp>, double> want;
    for (const Line& line : expected(config, static_cast<int>(rank), counted[rank].elements))
      want[{line.group, line.op}] += line.bytes;
    for (const auto& [key, entry] : counted[rank].ledger) want[key];  // what nothing explains must be zero
    for (const auto& [key, sum] : want)
      EXPECT_NEAR(bytes(counted[rank].ledger, key.first, key.second), sum, 1e-9 * (1 + sum))
          << key.first << " " << name_of(key.second) << " of rank " << rank << " on " << to_yaml(config);
    expect_planned(counted[rank].ledger, config, static_cast<int>(rank));
  }
}

class TensorBytes : public ::testing::TestWithParam<Architecture> {};

TEST_P(TensorBytes, EightSharesPerLayer) {
  for (int t : {2, 4}) expect_explained(job(GetParam(), t));
}

TEST_P(TensorBytes, TenSharesWithSequenceParallelism) {
  for (int t : {2, 4}) {
    RunConfig config = job(GetParam(), t);
    config.parallel.sequence_parallel = true;
    expect_explained(config);
  }
}

TEST_P(TensorBytes, StagesSendATensorRanksPart) {
  for (const bool sequence_parallel : {false, true}) {
    RunConfig config = job(GetParam(), 2, 2, 2);
    config.parallel.sequence_parallel = sequence_parallel;
    expect_explained(config);
    config.parallel.schedule = "zb-h1";
    expect_explained(config);
  }
}

TEST_P(TensorBytes, RecomputationSaysWhatItSendsAgain) {
  for (const bool sequence_parallel : {false, true})
    for (const char* recompute : {"selective", "full"}) {
      RunConfig config = job(GetParam(), 2);
      config.parallel.sequence_parallel = sequence_parallel;
      config.training.recompute = recompute;
      expect_explained(config);
      if (config.training.recompute == "selective") continue;
      config.training.partition_activations = true;
      config.parallel.pipeline = 2;
      expect_explained(config);
    }
}

// Messages of the tensor and pipeline axes have the size of the activations, sums of gradients that of fp32.
TEST_P(TensorBytes, HalfOfItInBf16) {
  for (const bool sequence_parallel : {false, true}) {
    RunConfig config = job(GetParam(), 2, 2, 2);
    config.parallel.sequence_parallel = sequence_parallel;
    config.training.precision = "bf16";
    expect_explained(config);
    config.parallel.overlap_comm = !config.parallel.overlap_comm;
    expect_explained(config);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorBytes, ::testing::Values(Architecture::gpt2, Architecture::llama),
                         [](const auto& info) {
                           return info.param == Architecture::gpt2 ? "gpt2" : "llama";
                         });

}  // namespace
}  // namespace triax::test
