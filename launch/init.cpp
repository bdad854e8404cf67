#include <filesystem>
#include <memory>

#include "checkpoint/file_io.h"
#include "core/error.h"
#include "engine/draft.h"
#include "engine/job.h"
#include "launch/cli.h"

namespace triax {

namespace {

struct InitOptions {
  DraftRequest draft;
  std::string device, cluster, output = "job.yaml", schema;
  bool force = false;
};

// What the ranks compute on: a cluster file, a device by name on nodes of 8, or this host.
ClusterConfig cluster_for(const InitOptions& o) {
  if (!o.cluster.empty() && !o.device.empty())
    fail_usage("--device and --cluster: the cluster file names the device; give one of them");
  if (!o.cluster.empty()) {
    RunConfig job;
    job.parallel.cluster = o.cluster;
    return cluster_of(job, o.draft.ranks);
  }
  if (o.device.empty() || o.device == "cpu") return this_host(o.draft.ranks);
  ClusterConfig cluster;
  cluster.device = o.device;
  device_named(o.device);  // says what it can be
  return cluster;
}

// The schema that is installed with this program, if one is.
std::string installed_schema() {
  std::error_code error;
  const auto home = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto path = home.parent_path() / "share" / "triax" / "job.schema.json";
  return std::filesystem::exists(path, error) ? path.string() : "";
}

int init(InitOptions o) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(o.output, error) && !o.force)
    fail_usage("{} exists already; give --force to replace it, or another --output", o.output);
  o.draft.cluster = cluster_for(o);
  o.draft.cluster_file = o.cluster;
  if (o.device != "cpu") o.draft.device = o.device;
  if (o.draft.train.empty()) o.draft.train = {"train.txt"};
  const Draft draft = draft_job(o.draft);
  replace_file(fs::absolute(o.output),
               draft_yaml(draft, o.draft, o.schema.empty() ? installed_schema() : o.schema));
  for (const std::string& reason : draft.reasons) fmt::print("{}\n", reason);
  const std::string device = o.draft.device.empty() ? "" : " --device " + o.draft.device;
  fmt::print("\n{} is written. Next:\n  triax plan {} --ranks {}{}\n  triax train {} --ranks {}\n", o.output,
             o.output, o.draft.ranks, device, o.output, o.draft.ranks);
  return exit_done;
}

}  // namespace

void add_init(CLI::App& app, const Choose& choose) {
  CLI::App* command = app.add_subcommand(
      "init", "write a commented job file for a published model, on the planner's best grid");
  const auto options = std::make_shared<InitOptions>();
  InitOptions& o = *options;
  command->add_option("--for", o.draft.family, "family of models: gpt2, llama or qwen2")
      ->capture_default_str();
  command
      ->add_option("--size", o.draft.size,
                   "published size: 124m, 350m, 1b, 7b, 13b, 70b ...; a wrong one lists all")
      ->capture_default_str();
  command->add_option("--ranks", o.draft.ranks, "number of ranks that the grid is for")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option(
      "--device", o.device,
      "what each rank computes on, on nodes of 8: h100, h200, a100, b200, a number of GiB, or "
      "cpu for this host (default: cpu)");
  command->add_option("--cluster", o.cluster,
                      "file that describes the cluster (see docs/planning.md), instead of --device");
  command->add_option("--data", o.draft.train, "files to train on (default: train.txt)")
      ->type_name("FILE ...");
  command->add_option("--validation", o.draft.validation, "files to measure the validation loss on")
      ->type_name("FILE ...");
  command->add_option("--name", o.draft.name, "name of the job (default: the family and the size)");
  command->add_option("--output", o.output, "file to write")->capture_default_str();
  command->add_option("--schema", o.schema,
                      "path or address of the JSON Schema for editors, written into the first line (default: "
                      "the installed one)");
  command->add_flag("--force", o.force, "replace the file if it exists");
  command->footer(
      "Example:\n"
      "  triax init --for llama --size 7b --ranks 64 --device h100 --data corpus.bin --output 7b.yaml\n"
      "  triax plan 7b.yaml --ranks 64 --device h100");
  command->final_callback([choose, options] { choose([options] { return init(*options); }); });
}

}  // namespace triax
