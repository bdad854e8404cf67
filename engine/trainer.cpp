#include "engine/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/nonfinite.h"
#include "engine/replicas.h"
#include "engine/state.h"
#include "model/dropout.h"
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

// Why steps can't be captured; empty where they can. Messages between ranks are ordered by their hosts.
std::string why_no_graph(const RunConfig& config, const Device& device) {
  if (device.kind() != DeviceKind::cuda) return fmt::format("training.device is {}", config.training.device);
  const ParallelConfig& p = config.parallel;
  const int ranks = p.tensor * p.pipeline * p.data;
  if (ranks > 1) return fmt::format("its {} ranks' hosts take part in the messages between them", ranks);
  return "";
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
  needs.sums = config.training.device == "cuda";
  needs.around = p.virtual_stages > 1;
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
      ahead_(config.training.device == "cuda"),
      sums_arena_("sums of a step", device),
      outcomes_("outcomes", device, Arena::Place::host),
      snapshot_("snapshot", device, Arena::Place::host),
      dropout_sites_(dropout_sites(config.model)) {
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
  const int64_t tokens = training.micro_batch_size * training.sequence_length;
  params_.commit(true, micro_batches_ * tokens);
  declare_inputs(tokens);
  const ActivationShape shape =
      activation_shape(config_, splits_backward(schedule_.stages[static_cast<size_t>(stage)]));
  stage_ = std::make_unique<Stage>(context_, std::move(chunks), shape, schedule_, evaluation);
  stage_->commit();
  optimizer_ = std::make_unique<Optimizer>(context_, config_.optimizer);
  optimizer_->commit();

  declare_sums();
  // What another memory holds is always written from a copy.
  const bool copies = config_.checkpoint.async || config_.training.device == "cuda";
  snapshot_.declare("state", {copies ? elements_to_save(*this) : 0}, DType::f32);
  snapshot_.commit();
  scratch_.commit(scratch_bytes);
  loss_scale_ =
      static_cast<float>(1.0 / static_cast<double>(training.global_batch_size * training.sequence_length));
  const bool planned = device.kind() == DeviceKind::none;
  graph_ = std::make_unique<StepGraph>(device, planned ? "off" : training.cuda_graph,
                                       why_no_graph(config, device));
}

Trainer::~Trainer() {
  if (flights_.empty()) return;
  try {
    device_.synchronize();
  } catch (const Error&) {  // after a fault every call fails: the fault itself has been told
  }
}

void Trainer::declare_inputs(int64_t tokens) {
  StepInputs::Sizes sizes{micro_batches_, tokens, std::tuple_size_v<Votes>,
                          static_cast<int64_t>(dropout_sites_.size())};
  const auto lookups = params_.lookups_apart();
  const bool by_slot = lookups && lookups->by_slot;
  if (by_slot) {
    const Box& box = lookups->table->box;
    sizes.first_row = box.offset[0], sizes.rows = box.extent[0], sizes.slots = lookups->grad[0];
  }
  inputs_ = std::make_unique<StepInputs>(device_, sizes, ahead_);
  if (by_slot) params_.set_slot_ids(inputs_->batch().slot_ids);
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
  if (!ahead_) return;
  const int host = outcomes_.declare("sums of two steps", {2, sums_.words.numel()}, DType::i64);
  outcomes_.commit();
  check(host == 0, "one tensor");
  for (int b = 0; b < 2; ++b) done_.push_back(device_.make_event());
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

Stage::Run Trainer::training_run() const {
  return {.micro_batches = &inputs_->batch(),
          .loss_scale = loss_scale_,
          .loss = sums_.loss,
          .seed = static_cast<uint64_t>(config_.seed),
          .dropout = inputs_->dropout(),
          .first_sequence = mesh_.coordinate("dp") * rows_per_step()};
}

// The loss or the norm of the step is not finite, and nothing has been updated; its inputs are in place.
StepResult Trainer::not_finite(const Flight& flight, StepResult result) {
  const int64_t step = flight.step;
  // A copy that differs would be the cause.
  if (config_.logging.check_replicas > 0) compare_replicas(step);
  ++skipped_.total, ++skipped_.in_row;
  const NonfiniteReport found =
      find_nonfinite({device_, mesh_, params_, *optimizer_, config_.model,
                      mesh_.coordinate("dp") * rows_per_step(), flights_.empty(), [&](const Probe& probe) {
                        params_.zero_grads();
                        device_.fill_zero(sums_.loss, sizeof(ExactSum));
                        Stage::Run run = training_run();
                        run.probe = &probe;
                        stage_->run(run);
                        if (flight.own_gradient_hook)
                          flight.own_gradient_hook(0, static_cast<int>(params_.entries().size()));
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

bool Trainer::runs_ahead(int64_t step) const {
  return device_.kind() == DeviceKind::cuda && !gradient_hook_ && !compares_replicas(step, {});
}

Trainer::Enqueued Trainer::enqueue(int64_t step, const std::function<Votes()>& my_votes) {
  Flight flight{
      .step = step,
      .block = inputs_->current(),
      .learning_rate = learning_rate(config_.lr_schedule, config_.optimizer, step, config_.training.steps),
      .measures_noise = measures_noise() && step % config_.logging.gradient_noise_scale == 0,
      .own_gradient_hook = own_gradient_hook_};
  const RangeScope range("step", {{"number", step}});
  TracePhases phase(trace_, "step");
  if (!runs_ahead(step)) {
    check(flights_.empty(), "step {} was begun while step {} is under way, and has to wait for the host",
          step, flights_.empty() ? 0 : flights_.front().step);
    done_at_once(flight, my_votes, phase);
    const Enqueued enqueued{!flight.result->skipped, flight.result->compared_replicas};
    flights_.push_back(std::move(flight));
    return enqueued;
  }
  check(flights_.empty() || (flights_.size() == 1 && flights_[0].block != flight.block),
        "step {} was begun without a batch of its own or before the outcome of step {} was taken", step,
        flights_.empty() ? 0 : flights_.front().step);
  if (my_votes) flight.votes = my_votes();
  flights_.push_back(std::move(flight));
  return {start(flights_.back(), phase), false};
}

// What differs from step to step, into the step's block.
void Trainer::set_inputs(const Flight& flight) {
  if (device_.kind() == DeviceKind::none) return;
  const UpdateScalars scalars = optimizer_->scalars(flight.step - skipped_.total, flight.learning_rate);
  UpdateScalars* place = inputs_->on_host(flight.block, inputs_->scalars());
  place->lr = scalars.lr;
  place->bias_correction1 = scalars.bias_correction1;
  place->bias_correction2 = scalars.bias_correction2;
  std::copy(flight.votes.begin(), flight.votes.end(),
            const_cast<int64_t*>(inputs_->on_host(flight.block, inputs_->votes())));
  dropout_domains(dropout_sites_, flight.step,
                  const_cast<uint64_t*>(inputs_->on_host(flight.block, inputs_->dropout())));
  inputs_->upload(flight.block);
}

// A whole step without a look at it: three calls and a launch when it is a graph. Returns whether the ledger
// has counted it.
bool Trainer::start(const Flight& flight, TracePhases& phase) {
  set_inputs(flight);
  const auto enqueue = [&] {
    add_gradients(flight, phase);
    sum_over_ranks(nullptr);
    update(phase);
  };
  bool counted = true;
  // Hooks and traces are told of calls one by one.
  if (flight.own_gradient_hook || (trace_ && trace_->on()))
    enqueue();
  else
    counted = graph_->run(enqueue, [&] { optimizer_->forget_progress(); });
  device_.read_later(outcomes_[0].rows(flight.block, 1).raw(), sums_.words.raw(), sums_.words.bytes());
  done_[static_cast<size_t>(flight.block)]->record();
  return counted;
}

StepResult Trainer::outcome() {
  check(!flights_.empty(), "no step is under way");
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  if (flight.result) return *flight.result;
  {
    const TraceScope traced(trace_, "step", "wait for the device");
    done_[static_cast<size_t>(flight.block)]->wait();
  }
  const Totals totals = totals_of(outcomes_[0].rows(flight.block, 1).as<int64_t>());
  StepResult result = result_of(flight, totals);
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) {
    finite(flight, totals, result);
    return result;
  }
  inputs_->upload(flight.block);
  result = not_finite(flight, std::move(result));
  device_.fill_zero(&inputs_->scalars()->skip, sizeof(UpdateScalars::skip));
  TracePhases phase(trace_, "step");
  if (!flights_.empty()) start(flights_.front(), phase);
  return result;
}

// The gradients' reduction and the sums of this rank.
void Trainer::add_gradients(const Flight& flight, TracePhases& phase) {
  optimizer_->measure_own_norm(flight.measures_noise ? sums_.own_squares : nullptr);
  phase.begin("zero gradients");
  params_.zero_grads();
  device_.fill_zero(sums_.words.raw(), sums_.words.bytes());
  const auto& hook = flight.own_gradient_hook;
  const std::function<void(int, int)> done = [&](int first, int end) {
    if (hook) hook(first, end);
    optimizer_->gradients_done(first, end);
  };
  phase.begin("forward and backward");
  Stage::Run run = training_run();
  if (config_.parallel.overlap_comm) run.gradients_done = &done;
  stage_->run(run);
  if (hook && !run.gradients_done) hook(0, static_cast<int>(params_.entries().size()));
  phase.begin("reduce gradients");
  optimizer_->sync_gradients();
  phase.begin("gradient norm");
  optimizer_->add_squared_norm(sums_.squared_norm);
  phase.begin("sums over all ranks");
  if (!counts_loss()) device_.fill_zero(sums_.loss, sizeof(ExactSum));
  context_.kernels.normalise_sums(device_, {sums_.count, sums_.loss});
}

// In the device's memory; without `votes` those of the step's inputs.
void Trainer::sum_over_ranks(const Votes* votes) {
  constexpr size_t bytes = sizeof(Votes);
  int64_t* place = sums_.words.as<int64_t>() + sums_.words.numel() - std::tuple_size_v<Votes>;
  if (votes)
    device_.write(place, votes->data(), bytes);
  else
    device_.copy(place, inputs_->votes(), bytes);
  mesh_.sums().all_reduce(sums_.words, sums_.words, ReduceOp::sum).wait();
}

void Trainer::update(TracePhases& phase) {
  phase.begin("update weights");
  optimizer_->update(inputs_->scalars(), sums_.squared_norm, sums_.loss);
  optimizer_->publish_weights();
}

// A step in which the host waits for the sums, before the update.
void Trainer::done_at_once(Flight& flight, const std::function<Votes()>& my_votes, TracePhases& phase) {
  set_inputs(flight);
  add_gradients(flight, phase);
  flight.votes = my_votes ? my_votes() : Votes{};
  sum_over_ranks(&flight.votes);
  std::vector<int64_t> words(static_cast<size_t>(sums_.words.numel()));
  device_.read(words.data(), sums_.words.raw(), sums_.words.bytes());
  const Totals totals = totals_of(words.data());
  StepResult result = result_of(flight, totals);
  if (gradient_hook_) gradient_hook_();
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    flight.result = not_finite(flight, std::move(result));
    return;
  }
  finite(flight, totals, result);
  if (compares_replicas(flight.step, totals.votes)) {
    phase.begin("compare replicas");
    compare_replicas(flight.step);
    result.compared_replicas = true;
  }
  update(phase);
  flight.result = std::move(result);
}

Trainer::Totals Trainer::totals_of(const int64_t* words) const {
  std::array<ExactSum, 3> sums{};
  for (size_t s = 0; s < static_cast<size_t>(sums_.count); ++s)
    std::memcpy(static_cast<void*>(&sums[s]), words + s * ExactSum::word_count, sizeof(ExactSum));
  Totals totals{sums[0].value(), sums[1].value(), sums[2].value(), {}};
  std::copy_n(words + sums_.words.numel() - totals.votes.size(), totals.votes.size(), totals.votes.begin());
  return totals;
}

StepResult Trainer::result_of(const Flight& flight, const Totals& totals) const {
  const double tokens =
      static_cast<double>(config_.training.global_batch_size * config_.training.sequence_length);
  StepResult result;
  result.loss = totals.loss / tokens;
  result.grad_norm = std::sqrt(totals.squared_norm);
  result.learning_rate = flight.learning_rate;
  result.votes = totals.votes;
  return result;
}

void Trainer::finite(const Flight& flight, const Totals& totals, StepResult& result) {
  skipped_.in_row = 0;
  if (flight.measures_noise) noise_.add(*(result.noise = noise_of(totals)));
}

void Trainer::set_trace(Trace* trace) {
  trace_ = trace;
  stage_->set_trace(trace);
  mesh_.world().recorder().set_trace(trace);
}

void Trainer::evaluate(ExactSum& sum) {
  device_.fill_zero(sums_.loss, sizeof(ExactSum));
  inputs_->upload(inputs_->current());
  stage_->run({.micro_batches = &inputs_->batch(), .evaluate = true, .loss = sums_.loss});
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

std::vector<MemoryLine> Trainer::memory() const {
  std::vector<MemoryLine> lines{{"weights", params_.weight_arena().bytes()},
                                {"gradients", params_.grad_arena().bytes() + params_.lookup_arena().bytes()},
                                {"optimizer", optimizer_->arena().bytes()},
                                {"activations", stage_->slot_arena().bytes()},
                                {"messages", stage_->message_arena().bytes()},
                                {"inputs", inputs_->bytes() + sums_arena_.bytes()},
                                {"scratch", scratch_.high_water()}};
  if (context_.kernels.workspace_bytes) lines.push_back({"workspace", context_.kernels.workspace_bytes});
  if (ahead_) lines.push_back({"page-locked", inputs_->host_bytes() + outcomes_.bytes(), true});
  lines.push_back({"snapshot", snapshot_.bytes(), true});
  return lines;
}

size_t Trainer::peak_bytes() const {
  size_t sum = 0;
  for (const MemoryLine& line : memory()) sum += line.bytes;
  return sum;
}

}  // namespace triax
