#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "checkpoint/compare.h"
#include "checkpoint/list.h"
#include "checkpoint/tidy.h"
#include "checkpoint/verify.h"
#include "launch/cli.h"

namespace triax {

namespace {

struct CheckpointOptions {
  std::string path, other, tensor;
  int keep = 0;
  bool json = false, dry_run = false;
};
using Options = std::shared_ptr<CheckpointOptions>;  // lives as long as the parser that fills it

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
  template <class Run>
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
  Options options_ = std::make_shared<CheckpointOptions>();
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

}  // namespace

void add_checkpoint(CLI::App& app, const Choose& choose) {
  Group group(app, choose);
  add_looking(group);
  add_changing(group);
}

}  // namespace triax
