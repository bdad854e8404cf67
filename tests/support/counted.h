#pragma once

#include "comm/ledger.h"
#include "support/training.h"

namespace triax::test {

/// What one rank sent in one step of a real run.
struct Counted {
  Ledger ledger;
  double elements = 0;  ///< of its weights, padding included
};

/// One training step on the job's grid with ranks as threads: what each rank's recorder counted.
inline std::vector<Counted> count_step(const RunConfig& config) {
  const ParallelConfig& p = config.parallel;
  const int ranks = p.tensor * p.pipeline * p.data;
  std::vector<Counted> counted(static_cast<size_t>(ranks));
  const Batches batches = random_batches(config, 1, 3);
  run_local_ranks(ranks, {}, [&](Communicator& world, int rank) {
    const auto device = make_cpu_device(1);
    Mesh mesh(grid_of(config), world, mesh_needs(config));
    Trainer trainer(config, mesh, *device, cpu_kernels(), plan_rank(config, rank).scratch_bytes);
    trainer.initialise();
    const int64_t row = config.training.sequence_length + 1;
    trainer.load_batch(batches[0].data() + mesh.coordinate("dp") * trainer.rows_per_step() * row);
    world.recorder().clear();
    trainer.step(1, {});
    counted[static_cast<size_t>(rank)] = {world.recorder().ledger(),
                                          static_cast<double>(trainer.params().elements())};
  });
  return counted;
}

inline double bytes(const Ledger& ledger, const std::string& group, CommOp op) {
  const auto found = ledger.find({group, op});
  return found == ledger.end() ? 0 : found->second.bytes;
}

/// The plan of `rank` is what was counted, call by call and byte by byte.
inline void expect_planned(const Ledger& ledger, const RunConfig& config, int rank) {
  EXPECT_EQ(disagreements(plan_rank(config, rank).bytes_per_step, ledger), std::vector<std::string>());
}

}  // namespace triax::test
