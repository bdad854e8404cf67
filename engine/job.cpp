#include "engine/job_to_plan.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/fields.h"
#include "data/tokenizer.h"
#include "engine/legal.h"
#include "engine/model_from.h"
#include "engine/search.h"

namespace triax {

namespace {

std::string absolute(const std::string& path) {
  if (path.empty()) return path;
  std::string text = std::filesystem::absolute(path).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

void resolve_paths(RunConfig& c) {
  c.output_dir = absolute(c.output_dir.empty() ? "runs/" + c.name : c.output_dir);
  c.checkpoint.dir = absolute(c.checkpoint.dir.empty() ? c.output_dir + "/checkpoints" : c.checkpoint.dir);
  if (c.checkpoint.resume != "auto" && c.checkpoint.resume != "never")
    c.checkpoint.resume = absolute(c.checkpoint.resume);
  c.model.from = absolute(c.model.from);
  c.parallel.cluster = absolute(c.parallel.cluster);
  if (!is_bytes(c.data.tokenizer)) c.data.tokenizer = absolute(c.data.tokenizer);
  for (auto* sources : {&c.data.train, &c.data.validation})
    for (DataSource& source : *sources) source.path = absolute(source.path);
}

void resolve_globs(RunConfig& c, FieldReport& report) {
  for (const auto& [key, sources] :
       {std::pair{"data.train", &c.data.train}, {"data.validation", &c.data.validation}}) {
    std::vector<std::string> problems = expand_globs(*sources, key);
    if (!problems.empty()) report.bad.insert(key);
    std::move(problems.begin(), problems.end(), std::back_inserter(report.problems));
  }
}

// Defaults that depend on other keys.
void resolve_defaults(RunConfig& c, const FieldReport& report) {
  if (!report.has("model.num_key_value_heads")) c.model.num_key_value_heads = c.model.num_attention_heads;
  if (!report.has("model.tie_word_embeddings"))
    c.model.tie_word_embeddings = c.model.architecture == Architecture::gpt2;
  auto& lr = c.lr_schedule;
  if (!report.has("lr_schedule.decay_steps")) lr.decay_steps = c.training.steps;
  if (lr.name == "wsd" && !report.has("lr_schedule.decay_start")) lr.decay_start = default_decay_start(lr);
}

// Nobody chose the grid: rules about its degrees would judge one that nobody asked for.
void leave_out_grid(FieldReport& report) {
  report.bad.insert({"parallel.tensor", "parallel.pipeline", "parallel.data"});
}

// tensor and pipeline auto: those of the quickest grid that fits; 1 without a number of ranks. Needs a job
// without other problems.
void resolve_grid(RunConfig& c, const JobRanks& ranks, int asked, FieldReport& report) {
  ParallelConfig& p = c.parallel;
  if (p.tensor && p.pipeline) return;
  std::vector<std::string>& problems = report.problems;
  GridSearch found;
  if (asked && !ranks.device.empty())
    problems.push_back(fmt::format(
        "parallel: tensor or pipeline auto takes the quickest grid of a cluster, of which --device "
        "{} tells too little; give --cluster FILE whose device is {}, or tensor and pipeline",
        ranks.device, ranks.device));
  else if (asked && ranks.launched && p.cluster.empty())
    problems.push_back(
        "parallel: tensor or pipeline auto under a launcher needs parallel.cluster, a file that describes "
        "the "
        "cluster, so that all processes choose alike; or give tensor and pipeline");
  else if (asked && problems.empty())
    found = search_grids(c, asked, cluster_of(c, asked));
  if (!found.fitting.empty()) {
    p = found.fitting.front().config.parallel;
    return;
  }
  if (!found.too_large.empty()) {
    const GridChoice& least = found.too_large.front();
    problems.push_back(
        fmt::format("parallel: no grid of {} ranks fits the memory of {:.1f} GiB per rank; the smallest, "
                    "tensor {} pipeline {} "
                    "data {}, needs {:.1f} GiB",
                    asked, cluster_of(c, asked).device_model().memory_gib, least.config.parallel.tensor,
                    least.config.parallel.pipeline, least.config.parallel.data,
                    static_cast<double>(least.peak_bytes) / (1024.0 * 1024 * 1024)));
  } else if (found.refused) {
    problems.push_back(
        fmt::format("parallel: no division of {} ranks is legal with the job's other keys, for example: {}",
                    asked, found.first_refusal));
  }
  if (asked && !problems.empty()) leave_out_grid(report);
  if (p.tensor == 0) p.tensor = 1;
  if (p.pipeline == 0) p.pipeline = 1;
}

// auto: ranks / (tensor * pipeline), 1 without a number of ranks; stays 0 where that is no whole number.
void resolve_data(ParallelConfig& p, int ranks) {
  const int64_t stage = int64_t{p.tensor} * p.pipeline;
  if (p.data != 0) return;
  if (ranks == 0)
    p.data = 1;
  else if (ranks % stage == 0)
    p.data = static_cast<int>(ranks / stage);
}

bool is_here(const std::string& path) {
  std::error_code error;
  return path.find_first_of("*?[") != std::string::npos || std::filesystem::exists(path, error) ||
         std::filesystem::exists(path + ".idx", error);
}

// The sources whose files are here; `absent` gets a sentence for each of the others.
std::vector<DataSource> sources_here(const std::vector<DataSource>& sources, const std::string& key,
                                     std::vector<std::string>& absent) {
  std::vector<DataSource> here;
  for (const DataSource& source : sources)
    if (is_here(source.path))
      here.push_back(source);
    else
      absent.push_back(
          fmt::format("{}: {} is not here: a plan needs no data, training does", key, source.path));
  return here;
}

// What a plan can check of the files.
void check_files_here(RunConfig config, std::vector<std::string>& absent, FieldReport& report) {
  const bool none = config.data.train.empty();
  config.data.train = sources_here(config.data.train, "data.train", absent);
  config.data.validation = sources_here(config.data.validation, "data.validation", absent);
  FieldReport files;
  files.bad = report.bad;
  if (!none && config.data.train.empty()) files.bad.insert("data.train");
  check_files(config, files);
  report.problems.insert(report.problems.end(), files.problems.begin(), files.problems.end());
}

// The job; `absent_data` (null: data must be here) as in load_job_to_plan().
RunConfig read_job(const std::vector<std::string>& files, const std::vector<std::string>& sets,
                   const JobRanks& ranks, std::vector<std::string>* absent_data,
                   std::vector<std::string>& problems) {
  RunConfig config;
  FieldReport report;
  ConfigNode root = ConfigNode::map();
  bool broken = false;  // what a file that could not be parsed lacks is not the job's fault
  for (const std::string& file : files) {
    const ConfigNode overlay = read_yaml(file, report.problems);
    broken |= overlay.entries.empty();
    merge(root, overlay);
  }
  for (const std::string& set : sets) set_value(root, set, report.problems);
  if (!broken) {
    const bool known_model = fill_model_from(root, report);
    read_fields(root, config, report);
    const int asked = ranks.launched ? ranks.launched : ranks.requested;
    const std::string from = ranks.launched ? "the launcher" : "--ranks";
    if (ranks.launched && ranks.requested && ranks.launched != ranks.requested)
      report.problems.push_back(
          fmt::format("--ranks {} disagrees with the {} processes of the launcher; leave "
                      "--ranks out, or start {}",
                      ranks.requested, ranks.launched, ranks.requested));
    if (!ranks.cluster.empty()) config.parallel.cluster = ranks.cluster;
    resolve_defaults(config, report);
    resolve_paths(config);
    resolve_globs(config, report);
    if (ranks.leave_grid_open) {
      config.parallel.tensor = config.parallel.pipeline = config.parallel.data = 0;
      leave_out_grid(report);
    } else {
      resolve_grid(config, ranks, asked, report);
      resolve_data(config.parallel, asked);
    }
    if (!known_model) report.bad.insert(report.known.begin(), report.known.end());  // rules would judge zeros
    check_legal(config, asked, from, report);
    if (absent_data)
      check_files_here(config, *absent_data, report);
    else
      check_files(config, report);
  }
  problems.insert(problems.end(), report.problems.begin(), report.problems.end());
  return config;
}

}  // namespace

RunConfig load_job(const std::vector<std::string>& files, const std::vector<std::string>& sets,
                   const JobRanks& ranks, std::vector<std::string>& problems) {
  return read_job(files, sets, ranks, nullptr, problems);
}

RunConfig load_job(const std::vector<std::string>& files, const std::vector<std::string>& sets,
                   const JobRanks& ranks) {
  std::vector<std::string> problems;
  RunConfig config = read_job(files, sets, ranks, nullptr, problems);
  refuse(problems);
  return config;
}

RunConfig load_job_to_plan(const std::vector<std::string>& files, const std::vector<std::string>& sets,
                           const JobRanks& ranks, std::vector<std::string>& absent) {
  std::vector<std::string> problems;
  RunConfig config = read_job(files, sets, ranks, &absent, problems);
  refuse(problems);
  return config;
}

void refuse(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  if (problems.size() == 1) fail_usage("{}", problems[0]);
  std::string list;
  for (const std::string& p : problems) list += "\n  - " + p;
  fail_usage("the job has {} problems:{}", problems.size(), list);
}

std::string to_yaml(const RunConfig& config) {
  return to_yaml(write_fields(config));
}
std::string to_json(const RunConfig& config) {
  return to_json(write_fields(config));
}
std::string job_schema() {
  return to_json(schema_of<RunConfig>("Triax job file"));
}

RunConfig config_from_yaml(const std::string& text, const std::string& source) {
  RunConfig config;
  FieldReport report;
  const ConfigNode root = parse_yaml(text, source, report.problems);
  if (report.problems.empty()) read_fields(root, config, report);
  check(report.problems.empty(), "{}", report.problems.empty() ? "" : report.problems[0]);
  return config;
}

int world_size(const RunConfig& config) {
  return config.parallel.tensor * config.parallel.pipeline * config.parallel.data;
}

int compute_threads(const RunConfig& config, int local_size) {
  if (config.training.threads > 0) return config.training.threads;
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, cores / std::max(1, local_size));
}

}  // namespace triax
