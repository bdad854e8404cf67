#include "engine/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/fields_text.h"
#include "core/shell.h"
#include "model/gpt.h"

namespace triax {

namespace {

constexpr double as_quick = 1.005;
constexpr int64_t tokens_per_parameter = 20, processor_batch = 32, most_sequences_at_once = 64;

double gib(size_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
}

std::string number_of(int64_t count, const std::string& noun, const std::string& plural = "s") {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : plural);
}

// A batch near the published one that divides among all the ranks.
int64_t batch_sequences(const DraftRequest& request, const ModelSize& size) {
  const double published = static_cast<double>(size.batch_tokens) / static_cast<double>(size.sequence_length);
  // The tokens of a batch are published rounded; the sequences were a power of two.
  int64_t sequences = request.cluster.device_model().is_host()
                          ? processor_batch
                          : int64_t{1} << std::llround(std::log2(published));
  if (sequences % request.ranks == 0 || sequences <= request.ranks) return sequences;
  // A multiple that leaves micro-batches a choice of sizes, as long as it stays within a sixteenth.
  int64_t unit = request.ranks;
  while (unit * 16 <= sequences) unit *= 2;
  return std::max<int64_t>(1, std::llround(static_cast<double>(sequences) / static_cast<double>(unit))) *
         unit;
}

std::vector<DataSource> sources(const std::vector<std::string>& paths) {
  std::vector<DataSource> list;
  for (const std::string& path : paths) list.emplace_back().path = path;
  return list;
}

RunConfig first_draft(const DraftRequest& request, const ModelSize& size) {
  RunConfig c;
  c.name = request.name.empty() ? fmt::format("{}-{}", size.family, size.name) : request.name;
  c.model = size.model;
  c.training.sequence_length = size.sequence_length;
  c.training.global_batch_size = batch_sequences(request, size);
  c.training.micro_batch_size = 1;
  c.training.precision = request.cluster.device_model().is_host() ? "fp32" : "bf16";
  const int64_t batch_tokens = c.training.global_batch_size * size.sequence_length;
  c.training.steps = std::max<int64_t>(1, tokens_per_parameter * parameter_count(size.model) / batch_tokens);
  c.optimizer.lr = size.lr;
  c.lr_schedule.name = "cosine";
  c.lr_schedule.warmup_steps = std::min<int64_t>(2000, c.training.steps / 50);
  c.lr_schedule.decay_steps = c.training.steps;
  c.lr_schedule.min_lr = std::stod(fmt::format("{:.3g}", size.lr / 10));
  c.data.train = sources(request.train);
  c.data.validation = sources(request.validation);
  c.parallel.cluster = request.cluster_file;
  c.parallel.tensor = c.parallel.pipeline = c.parallel.data = 0;
  return c;
}

struct Found {
  std::vector<GridChoice> fitting, too_large;
  std::string refusal;
};

// With sequence parallelism where there is a tensor group: it costs nothing and saves memory.
Found search(const RunConfig& job, const DraftRequest& request) {
  Found found;
  for (const bool sequence_parallel : {false, true}) {
    RunConfig c = job;
    c.parallel.sequence_parallel = sequence_parallel;
    c.parallel.tensor = sequence_parallel ? 0 : 1;
    if (sequence_parallel && request.ranks == 1) continue;
    GridSearch one = search_grids(c, request.ranks, request.cluster);
    std::move(one.fitting.begin(), one.fitting.end(), std::back_inserter(found.fitting));
    std::move(one.too_large.begin(), one.too_large.end(), std::back_inserter(found.too_large));
    if (found.refusal.empty()) found.refusal = one.first_refusal;
  }
  std::stable_sort(found.fitting.begin(), found.fitting.end(),
                   [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
  std::stable_sort(found.too_large.begin(), found.too_large.end(),
                   [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  return found;
}

// The same grid with twice the micro-batch for as long as that fits and is not slower: what the cost model
// does not count, launches and rounding of tiles, is less in large ones.
GridChoice with_best_micro_batch(GridChoice best, const DraftRequest& request) {
  const DeviceModel device = request.cluster.device_model();
  for (;;) {
    GridChoice next = best;
    TrainingConfig& t = next.config.training;
    t.micro_batch_size *= 2;
    if (t.micro_batch_size > most_sequences_at_once ||
        t.global_batch_size % (t.micro_batch_size * next.config.parallel.data))
      return best;
    const JobPlan plan = plan_job(next.config, &device);
    next.peak_bytes = bytes_on(plan, device);
    next.cost = step_cost(plan, request.cluster);
    if (static_cast<double>(next.peak_bytes) > device.bytes() ||
        next.cost.seconds > best.cost.seconds * as_quick)
      return best;
    best = std::move(next);
  }
}

std::string device_names() {
  std::string names;
  for (const DeviceModel& device : known_devices()) names += (names.empty() ? "" : ", ") + device.name;
  return names;
}

[[noreturn]] void nothing_fits(const Found& found, const DraftRequest& request, const ModelSize& size) {
  if (found.too_large.empty())
    fail_usage("{} ranks: no grid is legal for {}, for example: {}", request.ranks, size.title,
               found.refusal);
  const GridChoice& least = found.too_large.front();
  // Ranks share the host's memory, so that more of them have less each.
  const bool host = request.device.empty() && request.cluster_file.empty();
  const std::string remedy =
      host ? fmt::format(
                 "the ranks share this host's memory: say what they will run on (--device {} or a number of "
                 "GiB, or --cluster FILE), or give {}a smaller --size",
                 device_names(), request.ranks > 1 ? "fewer ranks, or " : "")
           : "give more ranks, or a smaller --size";
  fail_usage(
      "{} on {} ranks of {}: no grid fits {:.1f} GiB per rank; the smallest needs {:.1f} GiB (tensor "
      "{}, pipeline {}, data {}, recompute full); {}",
      size.title, request.ranks, request.cluster.device, request.cluster.device_model().memory_gib,
      gib(least.peak_bytes), least.config.parallel.tensor, least.config.parallel.pipeline,
      least.config.parallel.data, remedy);
}

std::vector<std::string> reasons_for(const Draft& d, const DraftRequest& request) {
  const RunConfig& c = d.config;
  const TrainingConfig& t = c.training;
  const DeviceModel device = request.cluster.device_model();
  const int64_t rounds = t.global_batch_size / t.micro_batch_size / c.parallel.data,
                batch = t.global_batch_size * t.sequence_length;
  std::vector<std::string> list{
      fmt::format("The shape is that of {}: {} parameters.", d.size->title, parameter_count(c.model)),
      fmt::format("{} ({}): tensor {} x pipeline {} x data {}, recompute {}, is the quickest of {} "
                  "that fit; {:.1f} GiB of {:.1f} GiB per rank.",
                  number_of(request.ranks, "rank"), device.name, c.parallel.tensor, c.parallel.pipeline,
                  c.parallel.data, t.recompute, number_of(d.grids, "grid"), gib(d.choice.peak_bytes),
                  device.memory_gib),
      fmt::format("A step is {} sequences x {} tokens = {} tokens: {} x {} x {}.", t.global_batch_size,
                  t.sequence_length, batch, number_of(c.parallel.data, "replica"),
                  number_of(rounds, "micro-batch", "es"), number_of(t.micro_batch_size, "sequence")),
      fmt::format("{} steps are {} tokens per parameter; warm-up and min_lr (lr / 10) are customary.",
                  t.steps, tokens_per_parameter)};
  if (device.is_host())
    list.push_back(fmt::format("The batch is small for processors; {} was trained with {} tokens a step.",
                               d.size->title, d.size->batch_tokens));
  return list;
}

// The command that drafts this job again.
std::string command_of(const Draft& draft, const DraftRequest& request) {
  std::string text = fmt::format("triax init --for {} --size {} --ranks {}", draft.size->family,
                                 draft.size->name, request.ranks);
  const auto add = [&](const char* option, const std::vector<std::string>& values) {
    if (values.empty()) return;
    text += std::string(" ") + option;
    for (const std::string& value : values) text += " " + shell_word(value);
  };
  const auto given = [](const std::string& value) {
    return value.empty() ? std::vector<std::string>{} : std::vector<std::string>{value};
  };
  add("--device", given(request.device));
  add("--cluster", given(request.cluster_file));
  add("--data", request.train);
  add("--validation", request.validation);
  add("--name", given(request.name));
  return text;
}

}  // namespace

Draft draft_job(const DraftRequest& request) {
  const ModelSize& size = model_size(request.family, request.size);
  Draft draft;
  draft.size = &size;
  RunConfig job = first_draft(request, size);
  Found found;
  for (const char* recompute : {"none", "selective", "full"}) {
    job.training.recompute = recompute;
    found = search(job, request);
    if (!found.fitting.empty()) break;
  }
  if (found.fitting.empty()) nothing_fits(found, request, size);
  draft.grids = static_cast<int>(found.fitting.size());
  draft.choice = with_best_micro_batch(std::move(found.fitting.front()), request);
  draft.config = draft.choice.config;
  draft.reasons = reasons_for(draft, request);
  return draft;
}

std::string draft_yaml(const Draft& draft, const DraftRequest& request, const std::string& schema) {
  std::string text;
  if (!schema.empty()) text += fmt::format("# yaml-language-server: $schema={}\n", schema);
  text += fmt::format("# Written by `{}`.\n", command_of(draft, request));
  for (const std::string& reason : draft.reasons) text += wrapped(reason, "# ", 100);
  RunConfig c = draft.config;
  c.parallel.data = 0;            // auto: other numbers of ranks run it too
  c.lr_schedule.decay_steps = 0;  // follows training.steps
  c.lr_schedule.decay_start = 0;
  return text + "\n" + commented_yaml(c);
}

}  // namespace triax
