// An outside count of what MPI is handed agrees with the ledger and with the plan (DESIGN section 7): this
// program stands between the MPI backend and the library (the profiling interface of the MPI standard,
// chapter 14), and counts the bytes of every message that a training step sends. Run by mpirun.

#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "support/training.h"

namespace {
int64_t counted_bytes = 0;
}

// The program exports its symbols, so the plugin that is opened later finds this one before the library's.
extern "C" int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  counted_bytes += int64_t{count} * size;
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}
// Whatever else could carry payload: the backend does without, and a change of that must not go uncounted.
extern "C" int MPI_Allreduce(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm) {
  std::fputs("MPI_Allreduce is not counted\n", stderr);
  std::abort();
}
extern "C" int MPI_Send(const void*, int, MPI_Datatype, int, int, MPI_Comm) {
  std::fputs("MPI_Send is not counted\n", stderr);
  std::abort();
}

namespace triax::test {
namespace {

RunConfig job(Architecture architecture, int tensor, int pipeline, int data) {
  RunConfig config;
  ModelConfig& m = config.model;
  m.architecture = architecture;
  m.vocab_size = 61;  // padded on every tensor degree above 1
  m.hidden_size = 48;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 12;
  m.num_key_value_heads = architecture == Architecture::llama ? 1 : 12;
  m.intermediate_size = 96;
  m.max_position_embeddings = 16;
  m.tie_word_embeddings = architecture == Architecture::gpt2;
  config.training.global_batch_size = 24;
  config.training.micro_batch_size = 2;
  config.training.sequence_length = 12;
  config.parallel = {};
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  return config;
}

std::vector<RunConfig> jobs_of(int ranks) {
  if (ranks == 6) return {job(Architecture::gpt2, 3, 1, 2), job(Architecture::llama, 3, 2, 1)};
  std::vector<RunConfig> jobs{job(Architecture::gpt2, 2, 2, 2), job(Architecture::llama, 2, 2, 2),
                              job(Architecture::gpt2, 1, 2, 4)};
  jobs.push_back(job(Architecture::gpt2, 4, 2, 1));
  jobs.back().parallel.zero_stage = 0;
  jobs.push_back(job(Architecture::llama, 1, 4, 2));
  jobs.back().parallel.schedule = "gpipe";
  jobs.push_back(job(Architecture::gpt2, 2, 2, 2));
  jobs.back().parallel.schedule = "interleaved";
  jobs.back().parallel.virtual_stages = 2;
  jobs.push_back(job(Architecture::llama, 1, 4, 2));
  jobs.back().parallel.schedule = "zb-h1";
  return jobs;
}

double total(const std::map<std::pair<std::string, CommOp>, Recorder::Entry>& ledger) {
  double bytes = 0;
  for (const auto& [key, entry] : ledger) bytes += entry.bytes;
  return bytes;
}

int64_t over_ranks(Communicator& world, int64_t mine) {
  int64_t all = 0;
  world.all_reduce(Tensor::of(&mine, Shape{1}), Tensor::of(&all, Shape{1}), ReduceOp::sum).wait();
  return all;
}

void compare(Communicator& world, const RunConfig& config) {
  const auto device = make_cpu_device(1);
  Mesh mesh(grid_of(config), world, mesh_needs(config));
  const RankPlan plan = plan_rank(config, world.rank());
  Trainer trainer(config, mesh, *device, cpu_kernels(), plan.scratch_bytes);
  trainer.initialise();
  const int64_t row = config.training.sequence_length + 1;
  const Batches batches = random_batches(config, 2, 3);
  int64_t counted = 0;
  double recorded = 0;
  for (size_t s = 0; s < batches.size(); ++s) {
    trainer.load_batch(batches[s].data() + mesh.coordinate("dp") * trainer.rows_per_step() * row);
    world.recorder().clear();
    const int64_t before = counted_bytes;
    trainer.step(static_cast<int64_t>(s) + 1, {});
    counted = counted_bytes - before;
    recorded = total(world.recorder().ledger());
  }
  // The ring convention gives every rank the average of what a buffer that doesn't divide sends; over all
  // ranks the sums are whole and equal.
  const double all_recorded = static_cast<double>(over_ranks(world, std::llround(recorded * 5040))) / 5040;
  const double all_planned =
      static_cast<double>(over_ranks(world, std::llround(total(plan.bytes_per_step) * 5040))) / 5040;
  const int64_t all_counted = over_ranks(world, counted);
  const ParallelConfig& p = config.parallel;
  if (world.rank() == 0)
    fmt::print(
        "{} tensor {} pipeline {} data {} zero {} {}: counted {} bytes, recorded {:.3f}, planned {:.3f}\n",
        config.model.architecture == Architecture::gpt2 ? "gpt2" : "llama", p.tensor, p.pipeline, p.data,
        p.zero_stage, p.schedule, all_counted, all_recorded, all_planned);
  check(all_counted > 0, "nothing was counted: this program does not stand before the MPI library");
  check(std::abs(all_recorded - static_cast<double>(all_counted)) < 0.5, "ledger and count differ");
  check(std::abs(all_planned - static_cast<double>(all_counted)) < 0.5, "plan and count differ");
}

}  // namespace
}  // namespace triax::test

int main() {
  using namespace triax;
  int rank = -1, size = -1;
  std::unique_ptr<MpiWorld> mpi;
  try {
    check(started_by_mpi(&rank, &size), "start this program by mpirun -n 6 or 8");
    CommOptions options;
    options.host_memory = false;  // all bytes by messages, as between hosts
    mpi = make_mpi_world(options);
    const auto world = mpi->communicator();
    for (const RunConfig& config : test::jobs_of(size)) test::compare(*world, config);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    if (mpi) mpi->abort(1);
    return 1;
  }
}
