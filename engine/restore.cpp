#include "engine/restore.h"

#include <filesystem>
#include <optional>
#include <set>

#include "checkpoint/agree.h"
#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "engine/job.h"
#include "engine/origin.h"
#include "engine/plan.h"
#include "engine/pretrained.h"
#include "engine/state.h"

namespace triax {

namespace {

namespace fs = std::filesystem;

class Restore {
 public:
  Restore(const RunConfig& config, Communicator& world, Trainer& trainer, const DataFingerprints& data,
          bool accept_changes, Log& log)
      : config_(config),
        world_(world),
        trainer_(trainer),
        data_(data),
        accept_changes_(accept_changes),
        log_(log) {}

  StartPoint run() {
    const CheckpointConfig& c = config_.checkpoint;
    const bool named = c.resume != "auto" && c.resume != "never";
    if (named && !began_there()) return from_named();
    if (c.resume != "never") {
      if (const auto info = newest_of_run()) return begin_at(*info);
    }
    if (named) {
      check(!named_.id.empty(),
            "no checkpoint of this run can be loaded, and {}, with which it began, is gone", c.resume);
      return from_named();
    }
    trainer_.initialise();
    if (!config_.model.from.empty()) from_pretrained();
    return {};
  }

 private:
  // The run has saved since it began with the checkpoint of another folder that the job names.
  // Where that one is gone, its path tells; else its identity, since it may have been replaced.
  bool began_there() {
    const CheckpointConfig& c = config_.checkpoint;
    const FoundCheckpoint own = find_checkpoint(world_, c.dir);
    if (!own.info || !began_with(*own.info, c.resume) || !named_is_gone()) {
      named_ = read_manifest(world_, c.resume);
      if (lies_in(named_.folder, c.dir) || !own.info || !own.info->extra.contains("origin")) return false;
      const nlohmann::json& origin = own.info->extra["origin"];
      if (!origin.is_object() || origin.value("id", std::string()) != named_.id) return false;
    }
    if (leads())
      log_.console("this run began with {} and has saved since then: it goes on with its own checkpoints",
                   config_.checkpoint.resume);
    return true;
  }

  bool named_is_gone() {
    std::string gone;
    collectively(world_, [&] {
      std::error_code none;
      if (leads() && !fs::is_directory(config_.checkpoint.resume, none)) gone = "gone";
    });
    broadcast_bytes(world_, gone, 0);
    return !gone.empty();
  }

  StartPoint from_named() {
    StartPoint start;
    if (config_.checkpoint.load == "weights") {
      compare_with(named_, /*weights_only=*/true);
      trainer_.initialise();
      load(named_, /*weights_only=*/true);
      tell(named_, "the weights of");
    } else {
      compare_with(named_, false);
      load(named_, false);
      start = begin_at(named_);
    }
    start.origin = {{"folder", named_.folder.string()}, {"id", named_.id}, {"step", named_.step}};
    leave_behind(start.saved ? start.position.step + 1 : start.position.step);
    return start;
  }

  std::optional<CheckpointInfo> newest_of_run() {
    std::set<fs::path> damaged;
    for (;;) {
      FoundCheckpoint found = find_checkpoint(world_, config_.checkpoint.dir, damaged);
      if (leads() && damaged.empty())
        for (const std::string& problem : found.problems) log_.error("checkpoint passed over: {}", problem);
      if (!found.info) {
        check(found.problems.empty() && damaged.empty(),
              "none of the checkpoints in {} can be used; mend or remove them, or set checkpoint.resume: "
              "never, "
              "which moves this run aside and starts anew",
              config_.checkpoint.dir);
        return std::nullopt;
      }
      try {
        compare_with(*found.info, false);
        load(*found.info, false);
        return std::move(found.info);
      } catch (const DamagedCheckpoint& damage) {  // the same on all ranks
        if (leads()) log_.error("checkpoint passed over: {}", damage.what());
        damaged.insert(found.info->folder);
      }
    }
  }

  void from_pretrained() {
    load_pretrained(world_, config_.model.from, config_.model,
                    pieces_to_load(trainer_, /*weights_only=*/true));
    trainer_.state_loaded();
    if (!leads()) return;
    log_.console("started from the weights of {}", config_.model.from);
    for (const std::string& note : read_hf_config(config_.model.from).notes) log_.console("  {}", note);
  }

  // Of a checkpoint that has been loaded.
  StartPoint begin_at(const CheckpointInfo& info) {
    StartPoint start;
    start.position = {info.step, info.consumed_samples, info.extra.value("loss", 0.0)};
    if (const auto skipped = info.extra.find("skipped_steps"); skipped != info.extra.end())
      trainer_.set_skipped({skipped->value("total", int64_t{0}), skipped->value("in_row", int64_t{0})});
    if (const auto noise = info.extra.find("gradient_noise"); noise != info.extra.end())
      trainer_.set_noise(
          {noise->value("norm_squared", 0.0), noise->value("trace", 0.0), noise->value("weight", 0.0)});
    start.saved = lies_in(info.folder, config_.checkpoint.dir);
    start.folder = info.folder.string();
    start.origin = info.extra.value("origin", nlohmann::json());
    tell(info, "");
    return start;
  }

  void compare_with(const CheckpointInfo& info, bool weights_only) {
    DataFingerprints before;
    if (info.extra.contains("data")) before = info.extra["data"].get<DataFingerprints>();
    changes_ = changes_on_resume(config_from_yaml(info.config, (info.folder / manifest_file).string()),
                                 before, config_, data_);
    // Of an imported model nothing but the model is known.
    if (info.extra.contains("imported"))
      std::erase_if(changes_, [](const ConfigChange& c) {
        return c.key.rfind("model.", 0) != 0 || c.key == "model.hidden_dropout";
      });
    // Other data and another optimizer are what weights are taken for.
    check_changes(changes_, accept_changes_ || weights_only);
  }

  void load(const CheckpointInfo& info, bool weights_only) {
    LoadOptions options;
    options.threads = trainer_.device().threads().size();
    if (leads())
      options.progress = [&](int64_t done, int64_t total) {
        log_.console("loading {}: {:.0f} % of rank 0's {}", info.folder.string(),
                     100.0 * static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1)),
                     human_bytes(static_cast<double>(total)));
      };
    load_checkpoint(world_, info, pieces_to_load(trainer_, weights_only), options);
    trainer_.state_loaded();
  }

  void tell(const CheckpointInfo& info, const char* what) {
    if (!leads()) return;
    log_.console("{} {}: step {}, {} samples, written by {}",
                 *what ? fmt::format("started from {}", what) : "resumed from", info.folder.string(),
                 info.step, info.consumed_samples, info.grid.value("text", std::string("an unknown grid")));
    if (const std::string text = describe(changes_); !text.empty())
      log_.console("changed since that checkpoint:\n{}", text);
  }

  void leave_behind(int64_t first_step) {
    std::vector<std::string> names;
    collectively(world_, [&] {
      if (leads()) names = set_aside(config_.checkpoint.dir, first_step);
    });
    for (const std::string& name : names)
      log_.console("a later checkpoint of another course of this run was set aside as {}",
                   (fs::path(config_.checkpoint.dir) / name).string());
  }

  bool leads() const { return world_.rank() == 0; }

  const RunConfig& config_;
  Communicator& world_;
  Trainer& trainer_;
  const DataFingerprints& data_;
  const bool accept_changes_;
  Log& log_;
  CheckpointInfo named_;
  std::vector<ConfigChange> changes_;
};

}  // namespace

StartPoint restore(const RunConfig& config, Communicator& world, Trainer& trainer,
                   const DataFingerprints& data, bool accept_changes, Log& log) {
  return Restore(config, world, trainer, data, accept_changes, log).run();
}

}  // namespace triax
