#include "engine/inference.h"

#include <algorithm>

#include "core/null_device.h"
#include "engine/plan.h"
#include "model/gpt.h"

namespace triax {

namespace {

DType dtype_of(const RunConfig& config) {
  return config.training.precision == "bf16" ? DType::bf16 : DType::f32;
}

InferencePart part_of(const RunConfig& config, const Mesh& mesh) {
  return InferencePart(make_part(config.model, mesh.coordinate("pp"), mesh.size("pp"), mesh.size("tp")),
                       mesh.first_stage(), mesh.last_stage());
}

}  // namespace

InferenceModel::InferenceModel(const RunConfig& config, Mesh& mesh, Device& device, const Kernels& kernels,
                               const InferenceShape& shape, size_t scratch_bytes)
    : mesh_(mesh),
      device_(device),
      hidden_(config.model.hidden_size),
      vocabulary_(config.model.vocab_size),
      shape_(shape),
      dtype_(dtype_of(config)),
      params_(mesh.grid(), mesh.rank(), device, 1, ParamStore::usual_bucket, dtype_),
      scratch_(device),
      context_{device, kernels, mesh, params_, scratch_},
      part_(part_of(config, mesh)),
      cache_("key-value cache", device),
      inputs_("inputs", device),
      messages_("messages", device) {
  part_.declare(params_);
  params_.commit(/*gradients=*/false);
  if (shape.positions) part_.plan_cache(shape.positions, dtype_);
  cache_.declare("keys and values", {static_cast<int64_t>(part_.cache().bytes())}, DType::u8);
  cache_.commit();

  const int64_t tokens = shape.batch * shape.sequence;
  const int ids = inputs_.declare("ids", {tokens}, DType::i32),
            targets = inputs_.declare("targets", {tokens}, DType::i32),
            logits = inputs_.declare("logits", {mesh.last_stage() ? vocabulary_ : 0}, DType::f32),
            loss = inputs_.declare("loss", {ExactSum::word_count}, DType::i64);
  inputs_.commit();
  ids_ = inputs_[ids], targets_ = inputs_[targets], logits_ = inputs_[logits], loss_ = inputs_[loss];
  const int64_t in = mesh.first_stage() ? 0 : tokens, out = mesh.last_stage() ? 0 : tokens;
  const int received = messages_.declare("activation received", {in, hidden_}, dtype_),
            first = messages_.declare("activation sent 0", {out, hidden_}, dtype_),
            second = messages_.declare("activation sent 1", {out, hidden_}, dtype_);
  messages_.commit();
  received_ = messages_[received], outgoing_[0] = messages_[first], outgoing_[1] = messages_[second];
  scratch_.commit(scratch_bytes);
}

void InferenceModel::run(Pass& pass) {
  const int stage = mesh_.coordinate("pp");
  Tensor x, y;
  if (!mesh_.first_stage()) {
    x = received_.rows(0, pass.tokens());
    mesh_.pp_forward().recv(x, stage - 1).wait();
  }
  if (!mesh_.last_stage()) {
    sent_[next_].wait();
    y = outgoing_[next_].rows(0, pass.tokens());
  }
  part_.forward(pass, x, y, hidden_, dtype_);
  if (mesh_.last_stage()) return;
  sent_[next_] = mesh_.pp_forward().send(y, stage + 1);
  next_ = 1 - next_;
}

void InferenceModel::extend(std::span<const int32_t> ids, int64_t position, std::span<float> logits) {
  const int64_t n = static_cast<int64_t>(ids.size());
  check(n >= 1 && n <= shape_.sequence && position >= 0 && position + n <= shape_.positions,
        "{} tokens at position {} of {}, {} at a time", n, position, shape_.positions, shape_.sequence);
  device_.write(ids_.raw(), ids.data(), ids.size_bytes());
  Pass pass{.context = context_, .slot = {}};
  pass.batch = 1;
  pass.sequence = n;
  pass.ids = ids_.rows(0, n);
  pass.evaluate = true;
  pass.cache = {&part_.cache(), cache_[0].raw()};
  pass.position = position;
  const bool wanted = !logits.empty() && mesh_.last_stage();
  if (wanted) pass.logits = logits_;
  run(pass);
  if (wanted) device_.read(logits.data(), logits_.raw(), logits_.bytes());
}

void InferenceModel::add_loss(const int32_t* ids, const int32_t* targets, int64_t batch, int64_t sequence,
                              ExactSum& loss) {
  check(batch >= 1 && batch <= shape_.batch && sequence >= 1 && sequence <= shape_.sequence,
        "{} sequences of {} tokens; at most {} of {}", batch, sequence, shape_.batch, shape_.sequence);
  Pass pass{.context = context_, .slot = {}};
  pass.batch = batch;
  pass.sequence = sequence;
  pass.ids = ids_.rows(0, batch * sequence);
  pass.targets = targets_.rows(0, batch * sequence);
  pass.evaluate = true;
  pass.loss = static_cast<ExactSum*>(loss_.raw());
  device_.fill_zero(loss_.raw(), loss_.bytes());
  device_.write(pass.ids.raw(), ids, pass.ids.bytes());
  device_.write(pass.targets.raw(), targets, pass.targets.bytes());
  run(pass);
  if (!mesh_.last_stage()) return;
  ExactSum mine;
  device_.read(&mine, loss_.raw(), sizeof mine);
  loss.add(mine);
}

void InferenceModel::finish() {
  for (Pending& message : sent_) message.wait();
}

std::vector<MemoryLine> InferenceModel::memory() const {
  return {{"weights", params_.weight_arena().bytes()},
          {"kv cache", cache_.bytes()},
          {"messages", messages_.bytes()},
          {"inputs", inputs_.bytes()},
          {"scratch", std::max(scratch_.capacity(), scratch_.high_water())}};  // the latter while planning
}

size_t InferenceModel::peak_bytes() const {
  size_t sum = 0;
  for (const MemoryLine& line : memory()) sum += line.bytes;
  return sum;
}

MeshNeeds inference_needs(const RunConfig& config) {
  MeshNeeds needs = mesh_needs(config);
  needs.backward = false;
  return needs;
}

InferencePlan plan_inference(const RunConfig& config, int rank, const InferenceShape& shape) {
  NullDevice device;
  Mesh mesh = Mesh::planned(grid_of(config), rank, inference_needs(config));
  const Kernels kernels = planning_kernels(config);  // the model refers to it
  InferenceModel model(config, mesh, device, kernels, shape, 0);
  // Nobody reads or writes what these point to: a planning device copies nothing.
  const std::vector<int32_t> ids(static_cast<size_t>(shape.batch * shape.sequence));
  std::vector<float> logits(static_cast<size_t>(config.model.vocab_size));
  ExactSum loss;
  if (shape.positions)
    model.extend({ids.data(), static_cast<size_t>(shape.sequence)}, 0, logits);
  else  // fewer sequences may be cut into larger pieces (Kernels::product_depth, the head's chunks)
    for (int64_t batch = 1; batch <= shape.batch; ++batch)
      model.add_loss(ids.data(), ids.data(), batch, shape.sequence, loss);
  model.finish();
  return {model.scratch_high_water(), model.memory(), model.memory().at(1).bytes};
}

}  // namespace triax
