#include "engine/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/nonfinite.h"
#include "engine/replicas.h"
#include "engine/state.h"
#include "model/gpt.h"
#include "optim/lr_schedule.h"
#include "pipeline/validate.h"

namespace triax {

namespace {

bool splits_backward(const std::vector<Action>& actions) {
  for (const Action& a : actions)
    if (a.kind == ActionKind::backward_weight) return true;
  return false;
}

DType dtype_of(const RunConfig& config) {
  return config.training.precision == "bf16" ? DType::bf16 : DType::f32;
}

ActivationShape activation_shape(const RunConfig& config, bool split_backward) {
  const ParallelConfig& p = config.parallel;
  const TrainingConfig& t = config.training;
  ActivationShape shape;
  shape.batch = t.micro_batch_size;
  shape.sequence = t.sequence_length;
  shape.hidden = config.model.hidden_size;
  shape.dtype = dtype_of(config);
  shape.split_backward = split_backward;
  shape.tensor = p.tensor;
  shape.sequence_parallel = p.sequence_parallel;
  shape.recompute = t.recompute == "full"        ? Recompute::full
                    : t.recompute == "selective" ? Recompute::selective
                                                 : Recompute::none;
  // With sequence parallelism every tensor rank has its own rows: inputs and messages are cut as they are.
  const bool alike = p.tensor > 1 && !p.sequence_parallel;
  shape.partition_inputs = alike && t.partition_activations;
  shape.scatter_messages = alike && p.pipeline > 1;
  return shape;
}

}  // namespace

Grid grid_of(const RunConfig& config) {
  const ParallelConfig& p = config.parallel;
  return Grid({{"tp", p.tensor}, {"dp", p.data}, {"pp", p.pipeline}});
}

MeshNeeds mesh_needs(const RunConfig& config) {
  const ParallelConfig& p = config.parallel;
  MeshNeeds needs = mesh_needs(config.model, p.tensor);
  needs.zero_shards = p.zero_stage == 0 ? 1 : p.zero_shard_ranks;
  needs.messages = {p.transport, config.training.deterministic};
  return needs;
}

Trainer::Trainer(const RunConfig& config, Mesh& mesh, Device& device, const Kernels& kernels,
                 size_t scratch_bytes)
    : config_(config),
      mesh_(mesh),
      device_(device),
      params_(mesh.grid(), mesh.rank(), device, mesh.dp().size(), config.parallel.reduce_bucket_size,
              dtype_of(config)),
      scratch_(device),
      context_{device,
               kernels,
               mesh,
               params_,
               scratch_,
               config.parallel.sequence_parallel,
               config.parallel.overlap_comm},
      micro_batches_(config.training.global_batch_size /
                     (config.training.micro_batch_size * config.parallel.data)),
      inputs_("inputs", device),
      sums_arena_("sums of a step", device),
      snapshot_("snapshot", device, Arena::Place::host) {
  const TrainingConfig& training = config_.training;
  const int stages = mesh.size("pp"), stage = mesh.coordinate("pp");
  const ScheduleShape schedule_shape{config_.parallel.schedule, stages, config_.parallel.virtual_stages,
                                     static_cast<int>(micro_batches_)};
  schedule_ = make_schedule(schedule_shape);
  validate(schedule_);
  const Schedule evaluation = make_evaluation(schedule_shape);
  validate(evaluation);

  const int parts = stages * config_.parallel.virtual_stages;
  std::vector<Chunk> chunks;
  for (int part = stage; part < parts; part += stages)
    chunks.emplace_back(make_part(config_.model, part, parts, mesh.size("tp")), part == 0, part == parts - 1);
  for (Chunk& chunk : chunks) chunk.declare(params_);
  params_.commit();
  const ActivationShape shape =
      activation_shape(config_, splits_backward(schedule_.stages[static_cast<size_t>(stage)]));
  stage_ = std::make_unique<Stage>(context_, std::move(chunks), shape, schedule_, evaluation);
  stage_->commit();
  optimizer_ = std::make_unique<Optimizer>(context_, config_.optimizer);
  optimizer_->commit();

  const Shape tokens{micro_batches_, shape.tokens()};
  const int ids = inputs_.declare("ids", tokens, DType::i32),
            targets = inputs_.declare("targets", tokens, DType::i32);
  inputs_.commit();
  batch_ = {inputs_[ids], inputs_[targets]};
  declare_sums();
  // What another memory holds is always written from a copy.
  const bool copies = config_.checkpoint.async || config_.training.device == "cuda";
  snapshot_.declare("state", {copies ? elements_to_save(*this) : 0}, DType::f32);
  snapshot_.commit();
  scratch_.commit(scratch_bytes);
  loss_scale_ =
      static_cast<float>(1.0 / static_cast<double>(training.global_batch_size * training.sequence_length));
}

void Trainer::load_batch(const int32_t* rows) {
  const int64_t s = config_.training.sequence_length;
  std::vector<int32_t> part(static_cast<size_t>(rows_per_step() * s));
  for (const auto& [tensor, shift] : {std::pair(batch_.ids, 0), std::pair(batch_.targets, 1)}) {
    for (int64_t r = 0; r < rows_per_step(); ++r)
      std::copy_n(rows + r * (s + 1) + shift, s, part.begin() + r * s);
    device_.write(tensor.raw(), part.data(), tensor.bytes());
  }
}

void Trainer::declare_sums() {
  constexpr int64_t words = ExactSum::word_count, votes = std::tuple_size_v<Votes>;
  sums_.count = measures_noise() ? 3 : 2;
  const int index = sums_arena_.declare("sums of a step", {sums_.count * words + votes}, DType::i64);
  sums_arena_.commit();
  sums_.words = sums_arena_[index];
  auto* sums = static_cast<ExactSum*>(sums_.words.raw());
  sums_.loss = sums;
  sums_.squared_norm = sums + 1;
  if (measures_noise()) sums_.own_squares = sums + 2;
}

float* Trainer::room_to_load(float* place, int64_t elements) {
  if (device_.kind() == DeviceKind::cpu) return place;
  loading_.push_back({place, std::vector<float>(static_cast<size_t>(elements))});
  return loading_.back().second.data();
}

void Trainer::state_loaded() {
  for (const auto& [place, values] : loading_)
    device_.write(place, values.data(), values.size() * sizeof(float));
  loading_.clear();
  optimizer_->masters_changed();
}

Stage::Run Trainer::training_run(int64_t step) {
  return {.micro_batches = &batch_,
          .loss_scale = loss_scale_,
          .loss = sums_.loss,
          .seed = static_cast<uint64_t>(config_.seed),
          .step = step,
          .first_sequence = mesh_.coordinate("dp") * rows_per_step()};
}

// The loss or the norm of the step is not finite, and nothing has been updated.
StepResult Trainer::not_finite(int64_t step, StepResult result) {
  // A copy that differs would be the cause.
  if (config_.logging.check_replicas > 0) compare_replicas(step);
  ++skipped_.total, ++skipped_.in_row;
  const NonfiniteReport found =
      find_nonfinite({device_, mesh_, params_, *optimizer_, config_.model,
                      mesh_.coordinate("dp") * rows_per_step(), [&](const Probe& probe) {
                        params_.zero_grads();
                        device_.fill_zero(sums_.loss, sizeof(ExactSum));
                        Stage::Run run = training_run(step);
                        run.probe = &probe;
                        stage_->run(run);
                        if (own_gradient_hook_)
                          own_gradient_hook_(0, static_cast<int>(params_.entries().size()));
                      }});
  const TrainingConfig& t = config_.training;
  const bool skip = t.on_nonfinite == "skip", too_many = skip && skipped_.in_row > t.max_skipped_steps;
  result.report = fmt::format(
      "step {}: the loss is {:.6g} and the gradient norm {:.6g}; no rank has changed a weight or a moment{}",
      step, std::fabs(result.loss), std::fabs(result.grad_norm), found.text);
  if (skip && !too_many && !found.in_weights) {
    result.skipped = true;
    return result;
  }
  std::string remedy =
      "\n  Resume from the newest checkpoint with a smaller optimizer.lr or a longer "
      "lr_schedule.warmup_steps";
  if (!skip) remedy += ", or pass over such steps with training.on_nonfinite: skip";
  if (too_many)
    remedy += fmt::format("; these were more than training.max_skipped_steps: {} steps in a row",
                          t.max_skipped_steps);
  if (found.in_weights)
    remedy += "\n  A weight that is not finite makes every later step so: skipping would not help";
  throw DivergedError(ErrorKind::fault, result.report + remedy);
}

StepResult Trainer::step(int64_t step, const std::function<Votes()>& my_votes) {
  StepResult result;
  const bool noise = measures_noise() && step % config_.logging.gradient_noise_scale == 0;
  optimizer_->measure_own_norm(noise ? sums_.own_squares : nullptr);
  TracePhases phase(trace_, "step");
  phase.begin("zero gradients");
  params_.zero_grads();
  device_.fill_zero(sums_.words.raw(), sums_.words.bytes());
  const std::function<void(int, int)> done = [&](int first, int end) {
    if (own_gradient_hook_) own_gradient_hook_(first, end);
    optimizer_->gradients_done(first, end);
  };
  phase.begin("forward and backward");
  Stage::Run run = training_run(step);
  if (config_.parallel.overlap_comm) run.gradients_done = &done;
  stage_->run(run);
  if (own_gradient_hook_ && !run.gradients_done)
    own_gradient_hook_(0, static_cast<int>(params_.entries().size()));
  phase.begin("reduce gradients");
  optimizer_->sync_gradients();
  phase.begin("gradient norm");
  optimizer_->add_squared_norm(sums_.squared_norm);
  phase.begin("sums over all ranks");
  const Totals totals = sum_over_ranks(my_votes);
  const double tokens =
      static_cast<double>(config_.training.global_batch_size * config_.training.sequence_length);
  result.loss = totals.loss / tokens;
  result.grad_norm = std::sqrt(totals.squared_norm);
  result.votes = totals.votes;
  if (gradient_hook_) gradient_hook_();
  result.learning_rate = learning_rate(config_.lr_schedule, config_.optimizer, step, config_.training.steps);
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm))
    return not_finite(step, std::move(result));
  skipped_.in_row = 0;
  if (noise) noise_.add(*(result.noise = noise_of(totals)));
  if (compares_replicas(step, totals.votes)) {
    phase.begin("compare replicas");
    compare_replicas(step);
    result.compared_replicas = true;
  }
  phase.begin("update weights");
  optimizer_->update(step - skipped_.total, result.learning_rate, sums_.squared_norm, sums_.loss);
  optimizer_->publish_weights();
  return result;
}

void Trainer::set_trace(Trace* trace) {
  trace_ = trace;
  stage_->set_trace(trace);
  mesh_.world().recorder().set_trace(trace);
}

void Trainer::evaluate(ExactSum& sum) {
  device_.fill_zero(sums_.loss, sizeof(ExactSum));
  stage_->run({.micro_batches = &batch_, .evaluate = true, .loss = sums_.loss});
  if (!counts_loss()) device_.fill_zero(sums_.loss, sizeof(ExactSum));
  context_.kernels.normalise_sums(device_, {1, sums_.loss});
  ExactSum all;
  device_.read(&all, sums_.loss, sizeof all);
  const Tensor digits = Tensor::of(all.digits(), {ExactSum::digit_count});
  mesh_.world().all_reduce(digits, digits, ReduceOp::sum).wait();
  sum.add(all);
}

// The data ranks' gradients are parts of the batch's mean; of its own sequences a rank's mean is data times
// that.
NoiseSample Trainer::noise_of(const Totals& totals) const {
  const auto batch = static_cast<double>(config_.training.global_batch_size);
  const double data = mesh_.size("dp");
  return noise_sample(data * totals.own_squared_norms, batch / data, totals.squared_norm, batch);
}

// Before the update, so that a damaged copy has no part in the state; and before whatever is saved.
bool Trainer::compares_replicas(int64_t step, const Votes& votes) const {
  const int64_t every = config_.logging.check_replicas;
  if (every == 0) return false;
  const bool asked = std::any_of(votes.begin(), votes.begin() + static_cast<std::ptrdiff_t>(Vote::writing),
                                 [](int64_t n) { return n > 0; });
  return asked || step % every == 0 || step % config_.checkpoint.interval == 0 ||
         step == config_.training.steps;
}

void Trainer::compare_replicas(int64_t step) {
  const std::string before = replicas_equal_at_ < 0 ? "; this is the first comparison"
                             : replicas_equal_at_ == 0
                                 ? "; they were at the start"
                                 : fmt::format("; they were when step {} compared them", replicas_equal_at_);
  triax::compare_replicas(
      {device_, mesh_, params_, *optimizer_, config_.model, device_.kind() != DeviceKind::none},
      fmt::format("step {}: replicas that should be equal are not{}", step, before));
  replicas_equal_at_ = step;
}

// Waits for the device, the only time of a step, and leaves the sums of all ranks in its memory, too.
Trainer::Totals Trainer::sum_over_ranks(const std::function<Votes()>& my_votes) {
  if (!counts_loss()) device_.fill_zero(sums_.loss, sizeof(ExactSum));
  context_.kernels.normalise_sums(device_, {sums_.count, sums_.loss});
  std::vector<int64_t> words(static_cast<size_t>(sums_.words.numel()));
  device_.read(words.data(), sums_.words.raw(), sums_.words.bytes());
  const Votes votes = my_votes ? my_votes() : Votes{};
  std::copy(votes.begin(), votes.end(), words.end() - static_cast<std::ptrdiff_t>(votes.size()));
  const Tensor all = Tensor::of(words.data(), {sums_.words.numel()});
  mesh_.world().all_reduce(all, all, ReduceOp::sum).wait();
  device_.write(sums_.words.raw(), words.data(), sums_.words.bytes());
  std::array<ExactSum, 3> sums{};
  for (size_t s = 0; s < static_cast<size_t>(sums_.count); ++s)
    std::memcpy(static_cast<void*>(&sums[s]), words.data() + s * ExactSum::word_count, sizeof(ExactSum));
  Totals totals{sums[0].value(), sums[1].value(), sums[2].value(), {}};
  std::copy_n(words.end() - totals.votes.size(), totals.votes.size(), totals.votes.begin());
  return totals;
}

std::vector<MemoryLine> Trainer::memory() const {
  return {{"weights", params_.weight_arena().bytes()},
          {"gradients", params_.grad_arena().bytes() + params_.tied_arena().bytes()},
          {"optimizer", optimizer_->arena().bytes()},
          {"activations", stage_->slot_arena().bytes()},
          {"messages", stage_->message_arena().bytes()},
          {"inputs", inputs_.bytes() + sums_arena_.bytes()},
          {"scratch", scratch_.high_water()},
          {"snapshot", snapshot_.bytes()}};
}

size_t Trainer::peak_bytes() const {
  size_t sum = 0;
  for (const MemoryLine& line : memory()) sum += line.bytes;
  return sum;
}

}  // namespace triax
