#include "engine/saver.h"

#include "engine/job.h"
#include "engine/plan.h"
#include "engine/state.h"

namespace triax {

namespace {

constexpr const char* saving = "saving a checkpoint";  // for those who wait meanwhile

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Saver::Saver(const RunConfig& config, Communicator& world, Trainer& trainer, const Grid& grid,
             nlohmann::json extra, Log& log, std::function<void(const std::string&)> say)
    : config_(config),
      world_(world),
      trainer_(trainer),
      extra_(std::move(extra)),
      log_(log),
      say_(std::move(say)) {
  for (const GridAxis& axis : grid.axes()) grid_[axis.name] = axis.size;
  grid_["text"] = to_string(grid);
}

bool Saver::due_by_clock() const {
  const double minutes = config_.checkpoint.every_minutes;
  return minutes > 0 && seconds_since(started_) >= 60 * minutes;
}

SaveRequest Saver::request(const RunPosition& now) const {
  SaveRequest save;
  save.dir = config_.checkpoint.dir;
  save.step = now.step;
  save.consumed_samples = now.consumed_samples;
  save.config = to_yaml(config_);
  save.grid = grid_;
  save.extra = extra_;
  save.extra["loss"] = now.loss;
  if (const SkippedSteps& skipped = trainer_.skipped(); skipped.total > 0)
    save.extra["skipped_steps"] = {{"total", skipped.total}, {"in_row", skipped.in_row}};
  if (const NoiseAverages& noise = trainer_.noise(); noise.weight > 0)
    save.extra["gradient_noise"] = {
        {"norm_squared", noise.norm_squared}, {"trace", noise.trace}, {"weight", noise.weight}};
  save.pieces = pieces_;
  save.keep = static_cast<int>(config_.checkpoint.keep);
  return save;
}

void Saver::report(const SaveResult& result, double seconds, double stall) {
  if (!leads()) return;
  say_(fmt::format("saved {} ({}) in {:.2f} s, training waited {:.3f} s", result.folder.string(),
                   human_bytes(static_cast<double>(result.bytes)), seconds, stall));
  log_.info("saved {}: {} bytes in {:.3f} s, training waited {:.3f} s", result.folder.string(), result.bytes,
            seconds, stall);
  for (const std::string& warning : result.warnings) log_.warn("{}", warning);
}

void Saver::advance(const RunPosition& now) {
  if (!running_) return;
  const CommPhase phase(world_.recorder(), saving);
  const auto begin = Clock::now();
  try {
    const auto result = running_->advance();
    stall_ += seconds_since(begin);
    if (!result) return;
    written_ = {running_->step(), running_->phases()};
    running_.reset();
    report(*result, seconds_since(started_), stall_);
  } catch (const AgreedError& error) {
    failed(error, now, false);
  }
}

void Saver::finish(const RunPosition& now) {
  while (running_) advance(now);
}

void Saver::start(const RunPosition& now) {
  const auto begin = Clock::now();
  TracePhases phase(trace_, "checkpoint");
  phase.begin("copy state");
  pieces_ = snapshot_to_save(trainer_);
  const double copied = seconds_since(begin);
  phase.begin("begin writing");
  running_ = std::make_unique<BackgroundSave>(world_, request(now));
  stall_ = seconds_since(begin);
  log_.info("a save in the background has begun; training waited {:.3f} s, {:.3f} s of it for the copy",
            stall_, copied);
}

void Saver::save_now(const RunPosition& now) {
  started_ = Clock::now();
  saved_step_ = -1;
  pieces_ = pieces_to_save(trainer_);
  const TraceScope traced(trace_, "checkpoint", "save");
  const SaveResult result = save_checkpoint(world_, request(now));
  saved_step_ = now.step;
  report(result, seconds_since(started_), seconds_since(started_));
}

void Saver::save(const RunPosition& now, bool last) {
  const CommPhase phase(world_.recorder(), saving);
  if (running_ && !last && leads() && running_->step() != now.step)
    say_(fmt::format("the save of step {} is still running when that of step {} is due: waiting for it",
                     running_->step(), now.step));
  const auto begin = Clock::now();
  const bool waited = running_ != nullptr;
  {
    const TraceScope traced(waited ? trace_ : nullptr, "checkpoint", "wait for the save before");
    finish(now);
  }
  if (waited) log_.info("waited {:.3f} s for the save before", seconds_since(begin));
  if (saved_step_ == now.step) return;
  try {
    if (last || !config_.checkpoint.async) return save_now(now);
    started_ = Clock::now();
    saved_step_ = now.step;
    start(now);
  } catch (const AgreedError& error) {
    failed(error, now, last);
  }
}

void Saver::set_aside(const RunPosition& now, const std::string& dir) {
  finish(now);
  if (saved_step_ == now.step) return;  // the newest checkpoint is this state
  pieces_ = pieces_to_save(trainer_);
  SaveRequest save = request(now);
  save.dir = dir;
  save.keep = 1;
  try {
    const SaveResult result = save_checkpoint(world_, save);
    if (leads())
      say_(
          fmt::format("the state at the stop, that of step {}, is in {}; `triax checkpoint inspect` reads it",
                      now.step, result.folder.string()));
  } catch (const AgreedError& error) {
    if (leads()) log_.error("the state at the stop could not be written to {}: {}", dir, error.what());
  }
}

void Saver::failed(const AgreedError& error, const RunPosition& now, bool last) {
  const int64_t step = running_ ? running_->step() : now.step;
  running_.reset();
  saved_step_ = -1;
  if (leads())
    log_.error("the checkpoint of step {} could not be saved, the older ones are as they were: {}", step,
               error.what());
  if (config_.checkpoint.on_error == "continue" && !last) return;
  if (leads()) log_.error("a final attempt is made, with the state of step {}", now.step);
  save_now(now);
}

}  // namespace triax
