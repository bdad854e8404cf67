#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>

#include "comm/launched.h"
#include "core/error.h"
#include "core/terminal.h"
#include "engine/job.h"
#include "engine/report.h"
#include "launch/cli.h"
#include "launch/command_tree.h"
#include "launch/commands.h"
#include "launch/launch.h"
#include "launch/plan_schedule.h"

namespace triax {

void add_job(CLI::App& command, JobArguments& job, bool required) {
  command.add_option("JOB.yaml", job.files, "job file, then overlays: merged left to right")
      ->required(required);
  command
      .add_option("--ranks", job.ranks, "number of ranks (default: what the job's parallel keys multiply to)")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--set", job.sets,
                  "key=value over the files, for example --set training.steps=10; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
}

namespace {

// One command: its options live as long as the parser, and `run` happens after parsing.
class CommandLine {
 public:
  explicit CommandLine(const AddCommands& more) {
    app_.require_subcommand(1);
    app_.get_formatter()->column_width(36);
    app_.set_help_all_flag("--help-all", "help of all commands");
    const Choose choose = [this](std::function<int()> command) { run_ = std::move(command); };
    add_init(app_, choose);
    add_train();
    add_plan();
    add_verify();
    add_launch(app_, choose);
    add_checkpoint(app_, choose);
    add_generate(app_, choose);
    add_evaluate(app_, choose);
    add_tokenize(app_, choose);
    add_report();
    if (more) more(app_, choose);
    add_describe(app_, choose);
    app_.add_subcommand("version", "print versions and what this machine offers")
        ->footer("Example:\n  triax version")
        ->final_callback([this] { run_ = version; });
  }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
      return app_.exit(help);
    } catch (const CLI::CallForAllHelp& help) {
      return app_.exit(help);
    } catch (const CLI::ParseError& error) {
      // A misspelt word is why something else is missing: it comes first.
      const std::string unknown = word_problem(app_);
      std::fputs(
          fmt::format("{} {}\nRun with --help for usage and an example.\n",
                      inked(stderr, Ink::red, "triax: error:"), unknown.empty() ? error.what() : unknown)
              .c_str(),
          stderr);
      return exit_usage;
    }
    return run_();
  }

 private:
  void add_train() {
    CLI::App* command = app_.add_subcommand(
        "train", "run a job; its ranks are threads, or processes when started by mpirun or srun");
    add_job(*command, train_.job);
    command->add_flag("--accept-changes", train_.accept_changes,
                      "resume although keys that change the mathematics differ");
    CLI::Option* quiet = command->add_flag("-q,--quiet", train_.quiet, "nothing but warnings and errors");
    command
        ->add_flag("-v,--verbose", train_.verbose,
                   "also what all ranks write to their logs, and what the time of steps goes into")
        ->excludes(quiet);
    command->footer(
        "Example:\n"
        "  triax train examples/demo.yaml --ranks 8 --set training.steps=100\n"
        "  mpirun -n 8 triax train examples/demo.yaml\n"
        "Exit status: 0 done, 1 fault, 2 bad usage or configuration, 75 stopped by SIGTERM or SIGUSR1 and "
        "130 by\n"
        "SIGINT after a checkpoint was saved: the same command continues.");
    command->final_callback([this] { run_ = [this] { return train(train_); }; });
  }

  void add_plan() {
    CLI::App* command = app_.add_subcommand(
        "plan", "grid, memory per rank, bytes per step and schedule of a job; runs nothing");
    add_job(*command, plan_.job, false);
    add_schedule_options(*command, plan_.schedule);
    command->add_flag("--json", plan_.json, "machine-readable, with the effective configuration");
    command->add_option(
        "--device", plan_.device,
        "h100, h200, a100, b200 or a number of GiB: whether the job fits, and the largest micro-batch "
        "that does");
    command->add_option("--cluster", plan_.cluster,
                        "file that describes a cluster: ranks per node, device, alpha and bandwidth (see "
                        "docs/planning.md)");
    command->add_flag("--search", plan_.search,
                      "all grids of --ranks N that fit the cluster, quickest step first");
    command->add_flag("--largest", plan_.largest,
                      "the largest model of the job's family that fits the device or cluster");
    command->footer(
        "Example:\n"
        "  triax plan examples/demo.yaml --ranks 8 --svg schedule.svg\n"
        "  triax plan examples/demo.yaml --ranks 8 --cluster examples/cluster.yaml --search\n"
        "  triax plan --schedule zb-h1 --stages 8 --micro-batches 24 --times 18.522,18.086,9.337,0.601");
    command->final_callback([this] { run_ = [this] { return plan(plan_); }; });
  }

  void add_verify() {
    CLI::App* command = app_.add_subcommand(
        "verify", "a job, shrunk, on its grid and on one rank: gradients, losses, and the plan's bytes");
    add_job(*command, verify_);
    command->footer(
        "Example:\n"
        "  triax verify examples/demo.yaml --ranks 8\n"
        "Exit status: 0 all agree, 1 something differs, 2 bad usage or configuration.");
    command->final_callback([this] { run_ = [this] { return verify(verify_); }; });
  }

  void add_report() {
    CLI::App* command = app_.add_subcommand(
        "report", "a run as one page, report.html; its curves as loss.svg and in the terminal");
    command->add_option("RUN", path_, "a run's folder, finished or not")->required();
    command->footer("Example:\n  triax report runs/demo");
    command->final_callback([this] { run_ = [this] { return report(path_, std::cout); }; });
  }

  CLI::App app_{"Triax trains transformer language models with tensor, pipeline and data parallelism.",
                "triax"};
  TrainOptions train_;
  PlanOptions plan_;
  JobArguments verify_;
  std::string path_;
  std::function<int()> run_;
};

}  // namespace

namespace {

int run_and_tell(int argc, char** argv, const AddCommands& more) {
  try {
    const int status = CommandLine(more).run(argc, argv);
    std::cout.flush();
    // What was asked for and could not be written is no success.
    if (status == exit_done && (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout))
      fail("standard output can't be written: {}", std::strerror(errno));
    return status;
  } catch (const Error& error) {
    const bool usage = error.kind() == ErrorKind::usage;
    std::fflush(stdout);
    std::fputs(fmt::format("{} {}{}\n", inked(stderr, Ink::red, "triax: error:"),
                           usage ? "" : error.place() + ": ", error.what())
                   .c_str(),
               stderr);
    return usage ? exit_usage : exit_fault;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fputs(fmt::format("{} {}\n", inked(stderr, Ink::red, "triax: error:"), error.what()).c_str(),
               stderr);
    return exit_fault;
  }
}

}  // namespace

int run_command_line(int argc, char** argv, const AddCommands& more) {
  const int status = run_and_tell(argc, argv, more);
  outlast_launch();
  return status;
}

}  // namespace triax
