// A model of one's own with Triax's libraries: Triax's embedding and head, and between them layers that Triax
// does not have. It is trained with Triax's AdamW on one rank and on two and four tensor ranks; the losses
// must agree. On one rank the first gradient must be what the loss does along it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "comm/local_ranks.h"
#include "model/chunk.h"
#include "model/ends.h"
#include "optim/optimizer.h"
#include "squared_relu.h"

using namespace triax;

namespace {

constexpr int64_t vocabulary = 64, hidden = 32, intermediate = 128, layers = 3, sequence = 32, steps = 30;

// What embedding and head are told.
ModelConfig shape() {
  ModelConfig m;
  m.architecture = Architecture::llama;  // no learned positions, RMSNorm
  m.vocab_size = vocabulary;
  m.hidden_size = hidden;
  m.num_hidden_layers = layers;
  m.num_attention_heads = m.num_key_value_heads = 4;
  m.intermediate_size = intermediate;
  m.max_position_embeddings = sequence;
  m.tie_word_embeddings = false;
  return m;
}

Chunk model() {
  std::vector<std::unique_ptr<Module>> modules;
  modules.push_back(std::make_unique<Embedding>(shape()));
  for (int64_t i = 0; i < layers; ++i)
    modules.push_back(std::make_unique<SquaredRelu>(fmt::format("layers.{}", i), hidden, intermediate));
  modules.push_back(std::make_unique<Head>(shape()));
  return Chunk(std::move(modules), /*first=*/true, /*last=*/true);
}

// A step of length e along the gradient g changes the loss by |g| e. Throws where the difference of two
// losses says otherwise. (Of one rank: others hold parts of g.)
void check_gradient(ParamStore& params, const std::function<double()>& loss) {
  float* w = params.weights().f32();
  const float* g = params.grads().f32();
  const std::vector<float> before(w, w + params.elements());
  double squares = 0;
  for (int64_t i = 0; i < params.elements(); ++i) squares += double{g[i]} * g[i];
  const double length = std::sqrt(squares), e = 1e-2;
  const auto loss_at = [&](double way) {
    for (int64_t i = 0; i < params.elements(); ++i)
      w[i] = static_cast<float>(before[static_cast<size_t>(i)] + way * g[i] / length);
    return loss();
  };
  const double slope = (loss_at(e) - loss_at(-e)) / (2 * e);
  std::copy(before.begin(), before.end(), w);
  check(std::abs(slope / length - 1) < 1e-3, "the gradient's length is {}, the loss's slope along it {}",
        length, slope);
}

// The losses of one rank of a tensor group.
std::vector<double> train(Communicator& world) {
  const Grid grid({{"tp", world.size()}});
  const std::unique_ptr<Device> device = make_cpu_device(1);
  Mesh mesh(grid, world, {});
  ParamStore params(grid, world.rank(), *device);
  Scratch scratch(*device);
  Context context{*device, cpu_kernels(), mesh, params, scratch};

  Chunk chunk = model();
  chunk.declare(params);
  params.commit();
  params.initialise(/*seed=*/1);
  ActivationShape activations;
  activations.batch = 1;
  activations.sequence = sequence;
  activations.hidden = hidden;
  activations.tensor = world.size();
  chunk.plan(activations);
  Arena slot("activations", *device);
  const int index = slot.declare("slot", {static_cast<int64_t>(chunk.slot().bytes())}, DType::u8);
  slot.commit();
  scratch.commit(size_t{16} << 20);
  OptimizerConfig adamw;
  adamw.clip_grad_norm = 0;  // else the ranks would have to add up their squared norms
  Optimizer optimizer(context, adamw);
  optimizer.commit();

  // The next token is a function of this one: something to learn.
  std::vector<int32_t> ids, targets;
  for (int64_t i = 0; i < sequence; ++i) {
    ids.push_back(static_cast<int32_t>(i * 7 % vocabulary));
    targets.push_back(static_cast<int32_t>((i * 7 + 5) * 11 % vocabulary));
  }
  const auto loss_of = [&](bool backward) {
    ExactSum loss;
    Pass pass{.context = context, .slot = {&chunk.slot(), slot[index].raw()}};
    pass.batch = 1;
    pass.sequence = sequence;
    pass.ids = Tensor::of(ids.data(), {sequence});
    pass.targets = Tensor::of(targets.data(), {sequence});
    pass.loss = &loss;
    pass.loss_scale = 1.0F / sequence;
    pass.evaluate = !backward;
    chunk.forward(pass, Tensor());
    if (backward) chunk.backward_input(pass, Tensor(), Tensor());
    return loss;
  };
  std::vector<double> losses;
  for (int64_t step = 1; step <= steps; ++step) {
    params.zero_grads();
    const ExactSum loss = loss_of(/*backward=*/true);
    if (step == 1 && world.size() == 1)
      check_gradient(params, [&] { return loss_of(/*backward=*/false).value() / sequence; });
    optimizer.sync_gradients();
    UpdateScalars scalars = optimizer.scalars(step, 3e-3);
    const ExactSum no_norm;
    optimizer.update(&scalars, &no_norm, &loss);
    optimizer.publish_weights();
    losses.push_back(loss.value() / sequence);
  }
  return losses;
}

}  // namespace

int main() {
  std::vector<double> one;
  for (const int tensor : {1, 2, 4}) {
    std::vector<double> losses;
    run_local_ranks(tensor, {}, [&](Communicator& world, int rank) {
      std::vector<double> mine = train(world);
      if (rank == 0) losses = std::move(mine);
    });
    if (tensor == 1) one = losses;
    double worst = 0;
    for (size_t i = 0; i < losses.size(); ++i) worst = std::max(worst, std::abs(losses[i] - one[i]) / one[i]);
    fmt::print(
        "tensor {}: loss {:.6f} at step 1, {:.6f} at step {}; largest difference from one rank {:.1e}\n",
        tensor, losses.front(), losses.back(), losses.size(), worst);
    if (worst > 1e-5 || losses.back() > losses.front() / 2) return 1;
  }
  return 0;
}
