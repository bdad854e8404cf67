#include "engine/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/fields.h"

namespace triax {

namespace {

using Flat = std::map<std::string, std::string>;

void flatten(const ConfigNode& node, const std::string& key, Flat& out) {
  if (node.kind == ConfigNode::Kind::map) {
    for (const auto& [name, value] : node.entries) flatten(value, key.empty() ? name : key + "." + name, out);
  } else if (node.kind == ConfigNode::Kind::list) {
    std::string text;
    for (const ConfigNode& item : node.items) text += (text.empty() ? "" : ", ") + item.text;
    out[key] = "[" + text + "]";
  } else {
    out[key] = node.kind == ConfigNode::Kind::null ? "null" : node.text;
  }
}

bool starts_with(const std::string& key, std::string_view section) {
  return key.compare(0, section.size(), section) == 0;
}

ChangeClass classify(const std::string& key, Architecture architecture) {
  static const char* const free_keys[] = {"name",
                                          "output_dir",
                                          "parallel.",
                                          "checkpoint.",
                                          "logging.",
                                          "debug.",
                                          "training.steps",
                                          "training.micro_batch_size",
                                          "training.device",
                                          "training.cuda_graph",
                                          "training.deterministic",
                                          "training.recompute",
                                          "training.threads",
                                          "training.stop_after_minutes",
                                          "training.on_nonfinite",
                                          "training.max_skipped_steps",
                                          "training.partition_activations",
                                          "data.validation_interval",
                                          "data.validation_batches",
                                          "data.tokenizer",
                                          "model.initializer_range",
                                          "model.from"};
  for (const char* free : free_keys)
    if (key == free || (std::string_view(free).back() == '.' && starts_with(key, free)))
      return ChangeClass::free;
  // Of the model, what has no part in the shape of a parameter. Positions have one in gpt2, which learns
  // them.
  static const std::set<std::string> shapeless = {"model.hidden_dropout", "model.layer_norm_epsilon",
                                                  "model.rms_norm_eps", "model.rope_theta"};
  if (shapeless.count(key) || starts_with(key, "model.rope_scaling.") ||
      (key == "model.max_position_embeddings" && architecture == Architecture::llama))
    return ChangeClass::mathematics;
  return starts_with(key, "model.") ? ChangeClass::impossible : ChangeClass::mathematics;
}

// Keys that say nothing about a model of this architecture.
std::vector<std::string> unused_keys(Architecture architecture) {
  if (architecture == Architecture::llama) return {"model.layer_norm_epsilon"};
  return {"model.rms_norm_eps", "model.rope_theta", "model.qkv_bias"};
}

}  // namespace

std::vector<ConfigChange> changes_on_resume(const RunConfig& before, const DataFingerprints& data_before,
                                            const RunConfig& now, const DataFingerprints& data_now) {
  Flat old_keys, new_keys;
  // What follows from other keys is as free as they are: decay_steps defaults to the steps, and decay_start
  // to a part of decay_steps.
  std::map<std::string, std::string> follows;
  const auto start_follows = [](const LrScheduleConfig& lr) {
    return lr.decay_start == default_decay_start(lr);
  };
  const bool steps_follow = before.lr_schedule.decay_steps == before.training.steps &&
                            now.lr_schedule.decay_steps == now.training.steps;
  if (steps_follow) follows["lr_schedule.decay_steps"] = "training.steps";
  if (steps_follow && start_follows(before.lr_schedule) && start_follows(now.lr_schedule))
    follows["lr_schedule.decay_start"] = "training.steps";
  flatten(write_fields(before), "", old_keys);
  flatten(write_fields(now), "", new_keys);
  for (Flat* keys : {&old_keys, &new_keys}) keys->erase("data.train"), keys->erase("data.validation");
  if (before.model.architecture == now.model.architecture)
    for (const std::string& key : unused_keys(now.model.architecture))
      old_keys.erase(key), new_keys.erase(key);
  auto weights = [](const std::vector<DataSource>& sources, const std::string& name, Flat& out) {
    for (size_t i = 0; i < sources.size(); ++i)
      out[fmt::format("data.{}.{}.weight", name, i)] = fmt::format("{}", sources[i].weight);
  };
  weights(before.data.train, "train", old_keys);
  weights(now.data.train, "train", new_keys);
  for (const auto& [key, print] : data_before) old_keys["data." + key + " (content)"] = print;
  for (const auto& [key, print] : data_now) new_keys["data." + key + " (content)"] = print;

  std::vector<ConfigChange> changes;
  Flat all = old_keys;
  all.insert(new_keys.begin(), new_keys.end());
  for (const auto& [key, unused] : all) {
    const auto a = old_keys.find(key), b = new_keys.find(key);
    const std::string from = a == old_keys.end() ? "(none)" : a->second,
                      to = b == new_keys.end() ? "(none)" : b->second;
    if (from == to) continue;
    const auto followed = follows.find(key);
    const bool follower = followed != follows.end(),
               validation = starts_with(key, "data.validation");  // measures, and changes nothing
    changes.push_back({key, from, to,
                       follower || validation ? ChangeClass::free : classify(key, now.model.architecture),
                       follower ? followed->second : ""});
  }
  return changes;
}

std::string describe(const std::vector<ConfigChange>& changes) {
  std::string text;
  const std::pair<ChangeClass, const char*> classes[] = {
      {ChangeClass::free, "free, how it is computed:"},
      {ChangeClass::mathematics, "mathematics, what is computed:"},
      {ChangeClass::impossible, "impossible, another model:"}};
  for (const auto& [kind, title] : classes) {
    std::string lines;
    for (const ConfigChange& c : changes)
      if (c.kind == kind)
        lines += fmt::format("    {}: {} -> {}{}\n", c.key, c.before, c.after,
                             c.follows.empty() ? "" : fmt::format(" (follows {})", c.follows));
    if (!lines.empty()) text += fmt::format("  {}\n{}", title, lines);
  }
  return text;
}

void check_changes(const std::vector<ConfigChange>& changes, bool accept_changes) {
  auto any = [&](ChangeClass kind) {
    return std::any_of(changes.begin(), changes.end(), [&](const ConfigChange& c) { return c.kind == kind; });
  };
  if (any(ChangeClass::impossible))
    fail_usage(
        "this job can't start from that checkpoint, because the model is another one:\n{}set the keys back, "
        "or start anew with checkpoint.resume: never or another output_dir",
        describe(changes));
  if (any(ChangeClass::mathematics) && !accept_changes)
    fail_usage(
        "resuming would change what is computed:\n{}set the keys back, or run again with --accept-changes",
        describe(changes));
}

}  // namespace triax
