#include "program/bench.h"

#include <iostream>
#include <memory>

#include "bench/checkpoint.h"
#include "bench/collectives.h"
#include "bench/device_kernels.h"
#include "bench/gemm_rate.h"
#include "bench/kernels.h"
#include "bench/startup.h"
#include "bench/step.h"
#include "bench/tensor_parallel.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "engine/job.h"

namespace triax {

namespace {

struct BenchOptions {
  JobArguments job;
  StepOptions step;
  int threads = 0;  ///< of the kernels; 0: from the machine
  std::string device = "cpu";
  bool small = false;
};
using Options = std::shared_ptr<BenchOptions>;  // lives as long as the parser that fills it

void add_kernels(CLI::App& group, const Choose& choose, const Options& options) {
  CLI::App* command = group.add_subcommand("kernels", "every kernel beside what the machine can do");
  command->add_option("--threads", options->threads, "compute threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--device", options->device, "whose kernels")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--small", options->small, "with cuda: small shapes, for a GPU that is emulated");
  command->footer("Example:\n  triax bench kernels --threads 1\n  triax bench kernels --device cuda");
  command->final_callback([choose, options] {
    choose([options] {
      if (options->device == "cuda") {
        bench_device_kernels(std::cout, make_backend("cuda", 1, 0), options->small);
        return exit_done;
      }
      bench_kernels(std::cout, options->threads ? options->threads : compute_threads({}, 1));
      return exit_done;
    });
  });
}

void add_rates(CLI::App& group, const Choose& choose, const Options& options) {
  CLI::App* command = group.add_subcommand(
      "rates", "the machine's rates alone, as JSON: matrix products in fp32 and bf16, memory");
  command->add_option("--threads", options->threads, "compute threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
  const auto seconds = std::make_shared<double>(0.5);
  command->add_option("--seconds", *seconds, "spent on each")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 60.0));
  command->footer("Example:\n  triax bench rates --seconds 1");
  command->final_callback([choose, options, seconds] {
    choose([options, seconds] {
      bench_rates(std::cout, options->threads ? options->threads : compute_threads({}, 1), *seconds);
      return exit_done;
    });
  });
}

int run_step(const BenchOptions& options) {
  const bool of_job = !options.job.files.empty();
  if (!of_job && (options.job.ranks || !options.job.sets.empty()))
    fail_usage("--ranks and --set go with a job file; without one GPT-2 124M is measured on one rank");
  int rank = 0, launched = 0;
  if (started_by_mpi(&rank, &launched) && !of_job && launched > 1)
    fail_usage("{} processes were started, and without a job file one rank is measured", launched);
  const RunConfig config =
      of_job ? load_job(options.job.files, options.job.sets, {launched, options.job.ranks}) : gpt2_124m_job();
  check_backend(config.training.device);
  bench_step(std::cin, std::cout, config, options.step);
  return exit_done;
}

void add_step(CLI::App& group, const Choose& choose, const Options& options) {
  CLI::App* command = group.add_subcommand("step", "training steps beside the machine's matrix products");
  add_job(*command, options->job, false);
  command->add_option("--steps", options->step.steps, "steps that are timed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  command->add_option("--threads", options->step.threads, "compute threads per rank (default: cores / ranks)")
      ->check(CLI::Range(1, 4096));
  command->add_option(
      "--tokens", options->step.tokens,
      "file of int32 [global batch, sequence + 1]: the batch of every step (default: random)");
  command
      ->add_flag("--turns", options->step.turns,
                 "read numbers of steps from the standard input, a line each, and write a line of JSON with "
                 "seconds and losses for each")
      ->excludes("--steps");
  CLI::Option* json =
      command->add_flag("--json", options->step.json, "machine-readable")->excludes("--turns");
  command->add_flag("--profile", options->step.profile, "the step's time by kernel, on rank 0")
      ->excludes("--turns")
      ->excludes(json);
  command->footer(
      "Example:\n  triax bench step --profile\n  triax bench step examples/demo.yaml --ranks 2 --steps 20\n"
      "  printf '1\\n5\\n' | triax bench step --turns");
  command->final_callback([choose, options] { choose([options] { return run_step(*options); }); });
}

void add_ranks(CLI::App& command, int& ranks) {
  command
      .add_option(
          "--ranks", ranks,
          "threads of this process (default: cores); under mpirun or srun its processes are the ranks")
      ->check(CLI::Range(2, 4096));
}

void add_collectives(CLI::App& group, const Choose& choose) {
  CLI::App* command =
      group.add_subcommand("collectives", "alpha and bandwidth against group and message size");
  const auto options = std::make_shared<CollectivesOptions>();
  add_ranks(*command, options->ranks);
  command->add_option("--max-bytes", options->max_bytes, "largest message")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{64}, int64_t{1} << 34));
  command->add_option("--seconds", options->seconds, "spent on each measurement")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 60.0));
  command->add_flag("--json", options->json, "machine-readable");
  command->footer(
      "Example:\n  triax bench collectives --ranks 4\n  mpirun -n 4 triax bench collectives --json");
  command->final_callback([choose, options] {
    choose([options] {
      bench_collectives(std::cout, *options);
      return exit_done;
    });
  });
}

void add_tensor_parallel(CLI::App& group, const Choose& choose) {
  CLI::App* command = group.add_subcommand(
      "tp", "communication over computation of tensor parallelism, measured and predicted");
  const auto options = std::make_shared<TensorParallelOptions>();
  add_ranks(*command, options->ranks);
  command->add_option("--hidden", options->hidden, "hidden sizes")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--tokens", options->tokens, "tokens of a micro-batch: sequence times sequences")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 26));
  command->add_option("--seconds", options->seconds, "spent on each measurement")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 60.0));
  command->add_flag("--json", options->json, "machine-readable");
  command->footer("Example:\n  triax bench tp --ranks 4 --hidden 512,1024 --tokens 4096,32768");
  command->final_callback([choose, options] {
    choose([options] {
      bench_tensor_parallel(std::cout, *options);
      return exit_done;
    });
  });
}

void add_checkpoint_bench(CLI::App& group, const Choose& choose) {
  CLI::App* command = group.add_subcommand(
      "checkpoint", "saving and loading beside the plain disk, and what a save in the background costs");
  const auto options = std::make_shared<CheckpointBenchOptions>();
  command->add_option("--dir", options->dir, "a folder on the disk to measure")->capture_default_str();
  command->add_option("--bytes", options->bytes, "size of the state that is written and read")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 40));
  command->add_option("--ranks", options->ranks, "threads that write and read it (default: cores)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--repeats", options->repeats, "turns of each measurement")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--json", options->json, "machine-readable");
  command->footer("Example:\n  triax bench checkpoint --dir /scratch");
  command->final_callback([choose, options] {
    choose([options] {
      bench_checkpoint(std::cout, *options);
      return exit_done;
    });
  });
}

void add_startup(CLI::App& group, const Choose& choose) {
  CLI::App* command = group.add_subcommand(
      "startup", "from the start to the end of the first step, phase by phase, against the number of ranks");
  const auto options = std::make_shared<StartupOptions>();
  command
      ->add_option(
          "--ranks", options->ranks,
          "numbers of ranks, threads of this process (default: 1,2,4,8,16,32,64); under mpirun or srun "
          "its processes are the ranks")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_option(
      "--beside", options->beside,
      "a file with what --json printed for other numbers of ranks: the lines go through both");
  command->add_flag("--json", options->json, "machine-readable");
  command->footer(
      "Example:\n  triax bench startup --ranks 1,8,64\n"
      "  mpirun -n 8 triax bench startup --json >8.json\n  mpirun -n 64 triax bench startup --beside 8.json");
  command->final_callback([choose, options] {
    choose([options] {
      bench_startup(std::cout, *options);
      return exit_done;
    });
  });
}

}  // namespace

void add_bench(CLI::App& app, const Choose& choose) {
  CLI::App* group = app.add_subcommand("bench", "measure this machine");
  group->require_subcommand(1);
  group->footer("Example:\n  triax bench kernels");
  const auto options = std::make_shared<BenchOptions>();
  add_kernels(*group, choose, options);
  add_rates(*group, choose, options);
  add_step(*group, choose, options);
  add_collectives(*group, choose);
  add_tensor_parallel(*group, choose);
  add_checkpoint_bench(*group, choose);
  add_startup(*group, choose);
}

}  // namespace triax
