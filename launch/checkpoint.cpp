#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "checkpoint/compare.h"
#include "checkpoint/list.h"
#include "checkpoint/stored_type.h"
#include "checkpoint/text.h"
#include "checkpoint/tidy.h"
#include "checkpoint/verify.h"
#include "engine/hf_export.h"
#include "engine/hf_import.h"
#include "launch/cli.h"
#include "launch/commands.h"

namespace triax {

namespace {

struct CheckpointOptions {
  std::string path, other, tensor, format = "hf", dtype = "fp32", max_shard_size = "5GB";
  std::vector<std::string> sets;
  int keep = 0;
  bool json = false, dry_run = false, force = false;
};
using SharedOptions = std::shared_ptr<CheckpointOptions>;  // lives as long as the parser that fills it

/// The group `triax checkpoint`, command by command.
class Group {
 public:
  Group(CLI::App& app, const Choose& choose)
      : group_(app.add_subcommand("checkpoint", "look at checkpoints; needs neither MPI nor a GPU")),
        choose_(choose) {
    group_->require_subcommand(1);
    group_->footer("Example:\n  triax checkpoint ls runs/demo");
  }

  /// `arguments` follow the name in the example.
  using Run = std::function<int(const CheckpointOptions&)>;
  CLI::App* add(const char* name, const char* what, const char* arguments, const Run& run) {
    CLI::App* command = group_->add_subcommand(name, what);
    command->add_flag("--json", options_->json, "machine-readable");
    command->footer(fmt::format("Example:\n  triax checkpoint {} {}", name, arguments));
    command->final_callback(
        [choose = choose_, options = options_, run] { choose([options, run] { return run(*options); }); });
    return command;
  }
  void add_path(CLI::App* command, const char* name = "PATH") {
    command->add_option(name, options_->path, "a run's folder, its checkpoints' folder, or one checkpoint")
        ->required();
  }
  CheckpointOptions& options() { return *options_; }

 private:
  CLI::App* group_;
  Choose choose_;
  SharedOptions options_ = std::make_shared<CheckpointOptions>();
};

void add_looking(Group& group) {
  group.add_path(
      group.add("ls", "all checkpoints of a run: step, loss, size, complete or not", "runs/demo",
                [](const CheckpointOptions& o) { return run_checkpoint_ls(o.path, o.json, std::cout); }));
  CLI::App* inspect =
      group.add("inspect", "grid, tensors, shapes and hashes of the newest one, or the one named",
                "runs/demo --tensor final_norm.weight", [](const CheckpointOptions& o) {
                  return o.tensor.empty() ? run_checkpoint_inspect(o.path, o.json, std::cout)
                                          : run_checkpoint_statistics(o.path, o.tensor, o.json, std::cout);
                });
  group.add_path(inspect);
  inspect->add_option("--tensor", group.options().tensor,
                      "statistics of this parameter and its moments, or of one path of the view");
  group.add_path(
      group.add("verify", "read every byte and compare it with the checksums and hashes", "runs/demo",
                [](const CheckpointOptions& o) { return run_checkpoint_verify(o.path, o.json, std::cout); }));
  CLI::App* diff = group.add(
      "diff", "what differs between two checkpoints, tensor by tensor",
      "runs/demo runs/other/checkpoints/step-00000100",
      [](const CheckpointOptions& o) { return run_checkpoint_diff(o.path, o.other, o.json, std::cout); });
  group.add_path(diff, "A");
  diff->add_option("B", group.options().other, "the other one; of a run's folder the newest is taken")
      ->required();
}

void add_changing(Group& group) {
  CLI::App* prune = group.add("prune", "delete older checkpoints, and what dead writers left",
                              "runs/demo --keep 2", [](const CheckpointOptions& o) {
                                return run_checkpoint_prune(o.path, o.keep, o.dry_run, o.json, std::cout);
                              });
  group.add_path(prune);
  prune->add_option("--keep", group.options().keep, "complete checkpoints that stay, the newest ones")
      ->required()
      ->check(CLI::Range(1, 1 << 30));
  prune->add_flag("--dry-run", group.options().dry_run, "only say what would be deleted");
  CLI::App* merge = group.add(
      "merge", "copy a checkpoint into one shard, for moving it", "runs/demo /media/stick/demo",
      [](const CheckpointOptions& o) { return run_checkpoint_merge(o.path, o.other, o.json, std::cout); });
  group.add_path(merge);
  merge->add_option("TARGET", group.options().other, "folder that gets the folder step-NNNNNNNN")->required();
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::cout << "note: " << note << "\n";
}

int run_export(const CheckpointOptions& o) {
  HfExportOptions options;
  options.type = stored_type(o.dtype);
  options.max_shard_bytes = parse_size(o.max_shard_size);
  options.force = o.force;
  if (!o.json) options.progress = [](const std::string& line) { std::cout << line << std::endl; };
  const CheckpointInfo info = newest_at(o.path);
  const HfExport done = export_hf(info, o.other, options);
  if (o.json) {
    std::cout << nlohmann::json{{"checkpoint", info.folder.string()},
                                {"folder", o.other},
                                {"architecture", done.architecture},
                                {"files", done.files},
                                {"tensors", done.tensors},
                                {"bytes", done.bytes},
                                {"notes", done.notes}}
                     .dump(2)
              << "\n";
    return exit_done;
  }
  std::cout << fmt::format("exported {} as {} of {} tensors, {}, to {}\n", info.folder.string(),
                           done.architecture, done.tensors, readable_bytes(done.bytes), o.other);
  print_notes(done.notes);
  return exit_done;
}

int run_import(const CheckpointOptions& o) {
  const HfImport done = import_hf(o.path, o.other, o.sets, o.force);
  if (o.json) {
    std::cout << nlohmann::json{{"source", o.path},
                                {"folder", o.other},
                                {"tensors", done.tensors},
                                {"bytes", done.bytes},
                                {"notes", done.notes}}
                     .dump(2)
              << "\n";
    return exit_done;
  }
  std::cout << fmt::format("imported {} into {} ({}); checkpoint.resume: {} starts from it\n", o.path,
                           o.other, readable_bytes(done.bytes), o.other);
  print_notes(done.notes);
  return exit_done;
}

void add_exchange(Group& group) {
  CLI::App* exporting = group.add("export", "write the weights as a model that transformers loads",
                                  "runs/demo demo-hf --format hf --dtype bf16", run_export);
  group.add_path(exporting);
  exporting->add_option("DIR", group.options().other, "folder that is made")->required();
  exporting->add_option("--format", group.options().format, "hf: config.json, safetensors, tokenizer")
      ->capture_default_str()
      ->check(CLI::IsMember({"hf"}));
  exporting->add_option("--dtype", group.options().dtype, "of the weights")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  exporting->add_option("--max-shard-size", group.options().max_shard_size, "of a file of weights")
      ->capture_default_str();
  exporting->add_flag("--force", group.options().force, "replace a model that is there");
  CLI::App* importing = group.add("import", "make a checkpoint of step 0 from a model of Hugging Face",
                                  "gpt2 imported/gpt2", run_import);
  importing->add_option("DIR", group.options().path, "folder with config.json and safetensors")->required();
  importing->add_option("OUT", group.options().other, "folder of the checkpoint, which is made")->required();
  importing->add_option("--set", group.options().sets, "key=value of the configuration that it holds");
  importing->add_flag("--force", group.options().force, "replace a checkpoint that is there");
}

}  // namespace

void add_checkpoint(CLI::App& app, const Choose& choose) {
  Group group(app, choose);
  add_looking(group);
  add_changing(group);
  add_exchange(group);
}

}  // namespace triax
