#include "engine/train.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/agree.h"
#include "comm/ledger.h"
#include "core/log.h"
#include "data/loader.h"
#include "engine/dump.h"
#include "engine/job.h"
#include "engine/job_data.h"
#include "engine/metrics.h"
#include "engine/origin.h"
#include "engine/plan.h"
#include "engine/plan_check.h"
#include "engine/replicas.h"
#include "engine/restore.h"
#include "engine/run_folder.h"
#include "engine/run_record.h"
#include "engine/saver.h"
#include "engine/startup.h"
#include "engine/step_trace.h"
#include "engine/stragglers.h"
#include "engine/tensorboard.h"
#include "model/gpt.h"
#include "parallel/backend.h"

namespace triax {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One rank's run of a job: everything that outlives a step.
class Run {
 public:
  Run(const RunConfig& config, Communicator& world, int local_rank, int local_size, const StopFlag& stop,
      const TrainRequest& request)
      : config_(config),
        world_(world),
        stop_(stop),
        request_(request),
        one_host_(local_size == world.size()),
        startup_(request.started, "program and ranks"),
        folder_(config, world),
        log_(folder_.log_path(world.rank()), world.rank(), request.verbose, request.quiet),
        starting_(tell_watchdog()),
        backend_(startup_.timed("run folder",
                                [&] {
                                  return make_backend(config.training.device,
                                                      compute_threads(config, local_size), local_rank);
                                })),
        device_(backend_.device.get()),
        mesh_(startup_.timed(
            "groups", [&] { return Mesh(grid_of(config), world, mesh_needs(config), backend_.memory()); })),
        plan_(startup_.timed("plan", [&] { return plan_rank(config, world.rank(), backend_.kernels); })),
        plan_check_(plan_, world.recorder()),
        trainer_(config, mesh_, *device_, *backend_.kernels, plan_.scratch_bytes),
        data_(startup_.timed("memory", [&] { return JobData(config); })),
        fingerprints_(startup_.timed("data", [&] { return shared_fingerprints(data_, world); })),
        loader_(*data_.train, rows_of_this_rank()) {
    starting_.reset();
    introduce();
  }

  /// From resuming to the last checkpoint; what comes of it is noted in the run's history.
  Outcome run();

 private:
  Outcome train();
  BatchRows rows_of_this_rank() const {
    return BatchRows::of_data_rank(config_.training.global_batch_size, mesh_.coordinate("dp"),
                                   mesh_.size("dp"));
  }
  bool leads() const { return world_.rank() == 0; }
  // From here on ranks can tell each other where they are.
  std::unique_ptr<CommPhase> tell_watchdog() {
    if (request_.crash) request_.crash->set_log(world_.rank(), folder_.log_path(world_.rank()));
    if (request_.watchdog) request_.watchdog->use_folder(folder_.logs_dir(), folder_.start_id());
    return std::make_unique<CommPhase>(world_.recorder(), "starting (planning, opening the data)");
  }
  void introduce();
  void announce();
  void begin();
  RunPosition position() const { return {step_, consumed_samples_, last_loss_}; }
  bool save_if_due();
  std::string how_to_continue() const;
  void begin_step();
  StepMetrics finish_step();
  StepMetrics metrics_of(const StepResult& result, int64_t step);
  bool settles_before_the_next(int64_t step) const;
  bool lists(const std::vector<int64_t>& steps, int64_t step) const {
    return std::find(steps.begin(), steps.end(), step) != steps.end();
  }
  bool validates(int64_t step) const {
    return data_.validation &&
           (step % config_.data.validation_interval == 0 || step == config_.training.steps);
  }
  bool requested() const {
    return voted(Vote::interrupt) || voted(Vote::terminate) || voted(Vote::user1) || voted(Vote::time_up) ||
           voted(Vote::save);
  }
  void spoil_gradient(int first_entry);
  void tell_skipped(const StepResult& result);
  void count_times(StepMetrics& m);
  void compare_times(StepMetrics& m);
  double validate();
  void finish_curves();
  void conclude();
  void compare_with_plan();
  void first_step_done();
  void summarise();
  void dump_step_batch(int64_t step, const int32_t* rows);
  bool to_be_traced(int64_t step) const;
  void begin_trace(int64_t step);
  void end_trace(int64_t step);
  void write_trace(StepTrace& trace);
  Votes my_votes();
  bool voted(Vote vote) const { return votes_[static_cast<size_t>(vote)] > 0; }

  RunConfig config_;
  Communicator& world_;
  const StopFlag& stop_;
  TrainRequest request_;
  bool one_host_;
  StartupClock startup_;
  RunFolder folder_;
  Log log_;
  std::unique_ptr<CommPhase> starting_;  // until all is made
  Backend backend_;
  Device* device_;
  Mesh mesh_;
  RankPlan plan_;
  PlanCheck plan_check_;
  Trace trace_;
  Trainer trainer_;
  JobData data_;
  DataFingerprints fingerprints_;
  Loader loader_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<TensorBoardFile> tensorboard_;
  std::unique_ptr<StepConsole> console_;
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<Saver> saver_;  // goes before what it saves
  Clock::time_point start_ = Clock::now();
  // The last step whose outcome is known, and the last that was begun: the same, but for a device that works
  // beside the host, which is one ahead while the host looks at an outcome.
  int64_t step_ = 0, begun_ = 0;
  int64_t consumed_samples_ = 0;  // up to step_
  int saves_seen_ = 0;            // of StopFlag::saves
  int64_t first_step_ = 1;
  Trace::Clock::time_point trace_origin_{};
  std::vector<StepTrace> traces_;  // that wait for what a save in the background has still to tell
  double last_loss_ = 0;
  Votes votes_{};
  /// From when a step's time and communication count: its begin, or the outcome of the step before, if that
  /// was taken later.
  struct Reading {
    Clock::time_point time;
    double exposed = 0, hidden = 0;
  };
  Reading reading() const {
    return {Clock::now(), world_.recorder().exposed_seconds(), world_.recorder().hidden_seconds()};
  }
  std::deque<Reading> began_;  // of the steps that are under way
  Reading outcome_taken_{};
  StragglerWatch stragglers_{stages_of(mesh_.grid()), config_.logging.straggler_factor,
                             config_.logging.straggler_patience};
  RankTimes window_;  // of the steps since the last comparison
  int64_t window_steps_ = 0;
  double window_seconds_ = 0;
  Ledger window_begin_;
};

// The first line of the rank's log.
void Run::introduce() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  log_.info("rank {} of {} on {}, process {}: tensor {}, data {}, stage {}; {} compute threads",
            world_.rank(), world_.size(), host, getpid(), mesh_.coordinate("tp"), mesh_.coordinate("dp"),
            mesh_.coordinate("pp"), device_->threads().size());
  if (!backend_.place.empty()) log_.info("computes on {}", backend_.place);
  if (!mesh_.transports().empty()) log_.info("messages between GPUs: {}", mesh_.transports());
}

void Run::announce() {
  if (!leads() || request_.quiet) return;
  const ModelConfig& m = config_.model;
  log_.console("{}: {:.1f} M parameters, {} layers, hidden {}, vocabulary {}", config_.name,
               static_cast<double>(parameter_count(m)) / 1e6, m.num_hidden_layers, m.hidden_size,
               m.vocab_size);
  log_.console("{}", group_table(mesh_.grid()));
  log_.console("schedule {}, {} micro-batches of {} sequences; {} compute {} per rank",
               config_.parallel.schedule, trainer_.rows_per_step() / config_.training.micro_batch_size,
               config_.training.micro_batch_size, device_->threads().size(),
               device_->threads().size() == 1 ? "thread" : "threads");
  if (!backend_.place.empty()) log_.console("rank 0 computes on {}", backend_.place);
  if (!mesh_.transports().empty()) log_.console("messages between GPUs: {}", mesh_.transports());
  log_.console("memory of rank 0, bytes:\n{}", memory_table(plan_.memory));
  if (!folder_.moved_to().empty())
    log_.console("checkpoint.resume is never: the older run was moved to {}", folder_.moved_to());
}

Votes Run::my_votes() {
  Votes votes{};
  const auto vote = [&](Vote v, bool yes) { votes[static_cast<size_t>(v)] = yes ? 1 : 0; };
  const int signal = stop_.signal.load();
  vote(Vote::interrupt, signal == SIGINT);
  vote(Vote::terminate, signal == SIGTERM);
  vote(Vote::user1, signal == SIGUSR1);
  const double minutes = config_.training.stop_after_minutes;
  vote(Vote::time_up, leads() && minutes > 0 && seconds_since(start_) >= 60 * minutes);
  vote(Vote::save, stop_.saves.load() > saves_seen_ || (leads() && saver_->due_by_clock()));
  vote(Vote::writing, saver_->writing());
  return votes;
}

void Run::dump_step_batch(int64_t step, const int32_t* rows) {
  const bool writes = mesh_.first_stage() && mesh_.coordinate("tp") == 0;
  const BatchRows mine = rows_of_this_rank();
  dump_batch(folder_.dump_path("batches", step), world_, rows, mine.first_row, writes ? mine.rows : 0,
             mine.global_batch, config_.training.sequence_length);
}

// Of the steps that are not named the second one: the first pays for memory that nobody has touched before.
bool Run::to_be_traced(int64_t step) const {
  const LoggingConfig& logging = config_.logging;
  const std::vector<int64_t>& steps = logging.trace_steps;
  if (!steps.empty()) return std::find(steps.begin(), steps.end(), step) != steps.end();
  return logging.trace && step == std::min(first_step_ + 1, config_.training.steps);
}

void Run::begin_trace(int64_t step) {
  if (!to_be_traced(step)) return;
  trace_origin_ = start_together(trace_, world_, one_host_);
  trainer_.set_trace(&trace_);
  saver_->set_trace(&trace_);
}

void Run::end_trace(int64_t step) {
  if (trace_.on()) {
    trace_.stop();
    trainer_.set_trace(nullptr);
    saver_->set_trace(nullptr);
    traces_.push_back({step, trace_origin_, trace_.spans()});
  }
  // Until the checkpoint of its step is complete, or failed, a trace waits for what that has to tell.
  while (!traces_.empty() && traces_.front().step != saver_->running_step()) {
    write_trace(traces_.front());
    traces_.erase(traces_.begin());
  }
}

void Run::write_trace(StepTrace& trace) {
  if (saver_->written().step == trace.step)
    for (const BackgroundSave::Phase& phase : saver_->written().phases)
      trace.add("checkpoint writer", phase.name, phase.begin, phase.end);
  const std::string path = folder_.trace_path(trace.step);
  triax::write_trace(path, trace, world_, mesh_.grid(), trainer_.schedule().shape);
  if (leads())
    console_->say(
        fmt::format("the trace of step {} is {}: ui.perfetto.dev opens it, `triax plan JOB --svg FILE "
                    "--trace RUN` draws it",
                    trace.step, path));
}

double Run::validate() {
  const TrainingConfig& t = config_.training;
  const BatchRows mine = rows_of_this_rank();
  std::vector<int32_t> rows(static_cast<size_t>(mine.rows * (t.sequence_length + 1)));
  ExactSum sum;
  for (int64_t batch = 0; batch < config_.data.validation_batches; ++batch) {
    for (int64_t r = 0; r < mine.rows; ++r)
      data_.validation->read_sample(batch * t.global_batch_size + mine.first_row + r,
                                    rows.data() + r * (t.sequence_length + 1));
    trainer_.load_batch(rows.data());
    trainer_.evaluate(sum);
  }
  return sum.value() /
         static_cast<double>(config_.data.validation_batches * t.global_batch_size * t.sequence_length);
}

// debug.nonfinite_gradient_at. Entries become complete in any order; the first one comes once.
void Run::spoil_gradient(int first_entry) {
  if (first_entry > 0) return;
  const float value = std::numeric_limits<float>::quiet_NaN();
  trainer_.device().write(trainer_.params().primary_grad(trainer_.params().entries().at(0)).raw(), &value,
                          sizeof value);
}

void Run::tell_skipped(const StepResult& result) {
  const std::string text = fmt::format("{}\n  skipped, the {}. in a row of at most {}", result.report,
                                       trainer_.skipped().in_row, config_.training.max_skipped_steps);
  log_.info("{}", text);
  if (leads()) console_->say(text);
}

// Reads the next step's batch and begins it; on the CPU it is done then.
void Run::begin_step() {
  began_.push_back(reading());
  const int64_t step = ++begun_;
  world_.recorder().set_step(step);
  log_.set_step(step);
  begin_trace(step);
  TracePhases phase(&trace_, "step");
  phase.begin("read batch");
  const auto rows = loader_.next(consumed_samples_ + (step - step_ - 1) * config_.training.global_batch_size);
  const DebugConfig& debug = config_.debug;
  if (lists(debug.dump_batches_at, step)) dump_step_batch(step, rows.data());
  phase.begin("copy batch");
  trainer_.load_batch(rows.data());
  phase.end();
  const bool dumps = lists(debug.dump_gradients_at, step);
  trainer_.on_gradients(dumps ? std::function<void()>([this, step] {
    dump_gradients(folder_.dump_path("gradients", step), world_, trainer_, config_.model);
  })
                              : nullptr);
  trainer_.on_own_gradients(lists(debug.nonfinite_gradient_at, step) && world_.rank() == world_.size() - 1
                                ? [this](int first, int) { spoil_gradient(first); }
                                : std::function<void(int, int)>());
  plan_check_.begin_step();
  const Trainer::Enqueued sent = trainer_.enqueue(step, [this] { return my_votes(); });
  if (!dumps && sent.counted) plan_check_.end_step(step, sent.compared_replicas);
  if (const std::string news = trainer_.graph_news(); !news.empty() && device_->kind() == DeviceKind::cuda)
    log_.info("{}", news);
}

// Whether something is to be seen or done between this step, which is under way, and the next one.
bool Run::settles_before_the_next(int64_t step) const {
  return !trainer_.runs_ahead(step + 1) || step == config_.training.steps || step == first_step_ ||
         step % config_.checkpoint.interval == 0 || validates(step) || requested() || to_be_traced(step) ||
         to_be_traced(step + 1) || lists(config_.debug.dump_gradients_at, step + 1);
}

// Of the oldest step that is under way.
StepMetrics Run::finish_step() {
  const int64_t step = step_ + 1;
  log_.set_step(step);
  const StepResult result = trainer_.outcome();
  if (result.skipped) tell_skipped(result);
  votes_ = result.votes;
  if (!result.skipped) last_loss_ = result.loss;  // of checkpoints, which tell a number
  consumed_samples_ += config_.training.global_batch_size;
  // A step that ran ahead was enqueued before anybody knew that its state is to be saved.
  if (config_.logging.check_replicas > 0 && trainer_.runs_ahead(step) && begun_ == step && requested())
    trainer_.compare_replicas(step);
  return metrics_of(result, step);
}

StepMetrics Run::metrics_of(const StepResult& result, int64_t step) {
  const TrainingConfig& t = config_.training;
  StepMetrics m;
  m.step = step;
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.learning_rate = result.learning_rate;
  m.skipped = result.skipped;
  m.noise = result.noise;
  if (m.noise) m.noise_scale = trainer_.noise().scale();
  m.consumed_samples = consumed_samples_;
  m.tokens = consumed_samples_ * t.sequence_length;
  const Reading now = reading(), begin = began_.front(),
                since = begin.time < outcome_taken_.time ? outcome_taken_ : begin;
  began_.pop_front();
  outcome_taken_ = now;
  m.step_seconds = std::chrono::duration<double>(now.time - since.time).count();
  m.exposed_seconds = now.exposed - since.exposed;
  m.hidden_seconds = now.hidden - since.hidden;
  const double tokens = static_cast<double>(t.global_batch_size * t.sequence_length);
  m.tokens_per_second = tokens / m.step_seconds;
  m.tflops = flops_per_token(config_.model, t.sequence_length) * m.tokens_per_second / world_.size() / 1e12;
  int64_t peak = static_cast<int64_t>(trainer_.peak_bytes());
  world_.all_reduce(Tensor::of(&peak, {1}), Tensor::of(&peak, {1}), ReduceOp::max).wait();
  m.peak_bytes = peak;
  count_times(m);
  return m;
}

// What is not waiting for others, or moving messages, is the rank's own: computing, reading, copying.
void Run::count_times(StepMetrics& m) {
  if (!compares_times(config_)) return;
  window_.wait += m.exposed_seconds;
  window_.compute += m.step_seconds - m.exposed_seconds;
  window_seconds_ += m.step_seconds;
  ++window_steps_;
  if (m.step % config_.logging.straggler_window == 0) compare_times(m);
}

void Run::compare_times(StepMetrics& m) {
  const double steps = static_cast<double>(window_steps_);
  std::string places;
  for (const auto& [key, entry] : difference(world_.recorder().ledger(), window_begin_))
    places += fmt::format(", {} {} {:.4f}", key.first, name_of(key.second), entry.exposed_seconds / steps);
  log_.info("of a step of the last {}: {:.4f} s computing, {:.4f} s in communication{}", window_steps_,
            window_.compute / steps, window_.wait / steps, places);
  plan_check_.begin_step();
  const std::vector<RankTimes> times =
      share_times(mesh_.world(), {window_.compute / steps, window_.wait / steps});
  plan_check_.end_window(m.step);
  const TimesSummary summary = summary_of(times);
  m.slowest_rank = summary.slowest_rank;
  m.compute_seconds_max = summary.compute_max;
  m.compute_seconds_median = summary.compute_median;
  for (const StragglerWatch::Finding& f : stragglers_.add(times, window_seconds_ / steps)) {
    const std::string text = describe(f, config_.logging.straggler_window);
    if (leads()) console_->say(text);
    if (leads() || f.rank == world_.rank()) log_.info("{}", text);
  }
  window_ = {};
  window_steps_ = 0;
  window_seconds_ = 0;
  window_begin_ = world_.recorder().ledger();
}

// The last checkpoint has been saved: now or never.
void Run::finish_curves() {
  collectively(world_, [&] {
    if (metrics_) metrics_->finish();
    if (tensorboard_) tensorboard_->finish();
  });
}

// What these steps took beside what was planned, at the end of the run or of this part of it.
void Run::conclude() {
  if (leads()) {
    console_->finish();
    if (world_.size() > 1)
      console_->say(
          "communication of rank 0 in this run, in seconds spent in it and seconds under computation:\n" +
          seconds_table(world_.recorder().ledger()));
  }
  compare_with_plan();
}

// The plan is made by the code that runs, so that a difference is a fault of that code.
void Run::compare_with_plan() {
  if (plan_check_.steps() == 0) return;
  const size_t peak = trainer_.peak_bytes();
  if (leads())
    console_->say(fmt::format("planned and measured on rank 0, {} steps, bytes:\n{}", plan_check_.steps(),
                              plan_check_.table(peak)));
  const std::vector<std::string> faults = plan_check_.faults(peak);
  check(faults.empty(), "the run did not keep to its plan: {}; the run itself is complete and saved",
        fmt::join(faults, "; "));
}

// Restores the state and opens what the run writes.
void Run::begin() {
  std::optional<CommPhase> phase(std::in_place, world_.recorder(), "loading weights or a checkpoint");
  const StartPoint start = restore(config_, world_, trainer_, fingerprints_, request_.accept_changes, log_);
  if (config_.logging.check_replicas > 0) trainer_.compare_replicas(start.position.step);
  step_ = begun_ = start.position.step;
  first_step_ = step_ + 1;
  consumed_samples_ = start.position.consumed_samples;
  last_loss_ = start.position.loss;
  folder_.store_job(config_, world_);
  const int64_t steps = config_.training.steps;
  if (leads()) {
    const auto report = [this](const std::string& line) { log_.error("{}", line); };
    metrics_ = std::make_unique<MetricsFile>(folder_.metrics_path(), step_, report);
    if (config_.logging.tensorboard && step_ < steps) {
      tensorboard_ = std::make_unique<TensorBoardFile>(folder_.tensorboard_dir(), step_ + 1, report);
      tensorboard_->describe(config_);
    }
    console_ = std::make_unique<StepConsole>(request_.quiet ? nullptr : stdout, request_.plain, step_ + 1,
                                             steps, config_.logging.interval, request_.verbose);
  }
  record_ = std::make_unique<RunRecord>(config_.output_dir, mesh_, world_,
                                        [this](const std::string& line) { log_.error("{}", line); });
  record_->begun(step_, start.folder);
  saver_ = std::make_unique<Saver>(config_, world_, trainer_, mesh_.grid(),
                                   nlohmann::json{{"data", fingerprints_}, {"origin", start.origin}}, log_,
                                   [this](const std::string& line) { console_->say(line); });
  if (start.saved) saver_->already_saved(step_);
  phase.reset();
  startup_.phase_done("state");
}

void Run::first_step_done() {
  startup_.phase_done("first step");
  record_->started(startup_.over_ranks(world_));
  summarise();
}

void Run::summarise() {
  record_->summarise(step_, plan_, plan_check_, trainer_);
}

// After a step. Returns true when the run is to end here.
bool Run::save_if_due() {
  if (!voted(Vote::writing)) saver_->advance(position());
  // The state is already the next step's: what is asked for is done after that.
  if (begun_ > step_) return false;
  const bool stop = voted(Vote::interrupt) || voted(Vote::terminate) || voted(Vote::user1) ||
                    voted(Vote::time_up) || step_ == config_.training.steps;
  if (stop || voted(Vote::save) || step_ % config_.checkpoint.interval == 0) {
    saver_->save(position(), stop);
    saves_seen_ = stop_.saves.load();
    summarise();
  }
  return stop;
}

std::string Run::how_to_continue() const {
  const std::string& resume = config_.checkpoint.resume;
  return resume == "never" || lies_in(resume, config_.checkpoint.dir) ? "checkpoint.resume: auto continues"
                                                                      : "the same command continues";
}

Outcome Run::train() {
  announce();
  begin();
  const int64_t steps = config_.training.steps;
  if (config_.checkpoint.save_initial) saver_->save(position(), step_ >= steps);
  if (step_ >= steps && leads())
    console_->say(fmt::format("step {} of {} is done: nothing left to do", step_, steps));
  while (step_ < steps) {
    StepMetrics metrics;
    try {
      if (begun_ == step_) begin_step();
      if (!settles_before_the_next(begun_)) begin_step();
      metrics = finish_step();
    } catch (const ReplicaError&) {  // on all ranks; nobody knows whether the state is worth keeping
      saver_->finish(position());
      throw;
    } catch (const DivergedError&) {  // on all ranks; the checkpoint before it is worth waiting for
      saver_->set_aside(position(), folder_.stopped_dir());
      throw;
    }
    ++step_;
    if (step_ == first_step_) first_step_done();
    if (validates(step_)) {
      const TraceScope traced(&trace_, "step", "validation");
      metrics.validation_loss = validate();
    }
    if (leads()) {
      metrics_->append(metrics);
      if (tensorboard_) tensorboard_->append(metrics);
      console_->step(metrics);
    }
    const bool stop = save_if_due();
    end_trace(step_);
    if (stop) finish_curves();
    if (stop && step_ < steps) {
      conclude();
      if (leads())
        console_->say(fmt::format("stopped {} after step {}; {}",
                                  voted(Vote::time_up) ? "by training.stop_after_minutes" : "on request",
                                  step_, how_to_continue()));
      return voted(Vote::interrupt) ? Outcome::interrupted : Outcome::stopped;
    }
  }
  conclude();
  return Outcome::finished;
}

Outcome Run::run() {
  try {
    const Outcome outcome = train();
    log_.info("ended");
    record_->ended(step_, outcome == Outcome::finished      ? "finished"
                          : outcome == Outcome::interrupted ? "interrupted"
                                                            : "stopped");
    return outcome;
  } catch (const std::exception& error) {
    log_.note_error("ended by {}", error.what());
    if (record_) record_->ended(step_, "fault", error.what());
    throw;
  }
}

}  // namespace

Outcome run_rank(const RunConfig& config, Communicator& world, int local_rank, int local_size,
                 const StopFlag& stop, const TrainRequest& request) {
  Run run(config, world, local_rank, local_size, stop, request);
  return run.run();
}

}  // namespace triax
