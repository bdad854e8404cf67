#include "program/bench.h"

#include <iostream>
#include <memory>

#include "bench/kernels.h"
#include "bench/step.h"
#include "core/error.h"
#include "engine/job.h"

namespace triax {

namespace {

struct BenchOptions {
  JobArguments job;
  int steps = 10;
  int threads = 0;  ///< 0: from the machine
};
using Options = std::shared_ptr<BenchOptions>;  // lives as long as the parser that fills it

void add_kernels(CLI::App& group, const Choose& choose, const Options& options) {
  CLI::App* command = group.add_subcommand("kernels", "every CPU kernel beside what the machine can do");
  command->add_option("--threads", options->threads, "compute threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
  command->footer("Example:\n  triax bench kernels --threads 1");
  command->final_callback([choose, options] {
    choose([options] {
      bench_kernels(std::cout, options->threads ? options->threads : compute_threads({}, 1));
      return exit_done;
    });
  });
}

int run_step(const BenchOptions& options) {
  const bool of_job = !options.job.files.empty();
  if (!of_job && (options.job.ranks || !options.job.sets.empty()))
    fail_usage("--ranks and --set go with a job file; without one GPT-2 124M is measured on one rank");
  const RunConfig config =
      of_job ? load_job(options.job.files, options.job.sets, {0, options.job.ranks}) : gpt2_124m_job();
  bench_step(std::cout, config, options.steps,
             options.threads ? options.threads : compute_threads(config, world_size(config)));
  return exit_done;
}

void add_step(CLI::App& group, const Choose& choose, const Options& options) {
  CLI::App* command = group.add_subcommand("step", "training steps beside the machine's matrix products");
  add_job(*command, options->job, false);
  command->add_option("--steps", options->steps, "steps that are timed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_option("--threads", options->threads, "compute threads per rank (default: cores / ranks)")
      ->check(CLI::Range(1, 4096));
  command->footer("Example:\n  triax bench step\n  triax bench step examples/demo.yaml --ranks 2 --steps 20");
  command->final_callback([choose, options] { choose([options] { return run_step(*options); }); });
}

}  // namespace

void add_bench(CLI::App& app, const Choose& choose) {
  CLI::App* group = app.add_subcommand("bench", "measure this machine");
  group->require_subcommand(1);
  group->footer("Example:\n  triax bench kernels");
  const auto options = std::make_shared<BenchOptions>();
  add_kernels(*group, choose, options);
  add_step(*group, choose, options);
}

}  // namespace triax
