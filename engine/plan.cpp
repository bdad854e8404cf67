#include "engine/plan.h"

#include "model/gpt.h"

namespace triax {

RankPlan plan_rank(const RunConfig& config, int rank) {
  const auto device = make_null_device();
  Mesh mesh = Mesh::planned(grid_of(config), rank, mesh_needs(config));
  Trainer trainer(config, mesh, *device, null_kernels(), 0);
  RankPlan plan;
  plan.rank = rank;
  ExactSum unused;
  trainer.evaluate(unused);
  mesh.world().recorder().clear();
  trainer.step(1, {});
  plan.bytes_per_step = mesh.world().recorder().ledger();
  plan.memory = trainer.memory();
  plan.scratch_bytes = trainer.scratch_high_water();
  plan.peak_bytes = trainer.peak_bytes();
  plan.parameters = trainer.params().elements();
  plan.in_flight = trainer.stage().slot_count();
  return plan;
}

std::string human_bytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) bytes /= 1024, ++unit;
  return unit ? fmt::format("{:.1f} {}", bytes, units[unit]) : fmt::format("{:.0f} B", bytes);
}

std::string memory_table(const std::vector<MemoryLine>& memory) {
  std::string text;
  size_t sum = 0;
  for (const MemoryLine& line : memory) {
    text += fmt::format("  {:<12} {:>16} {:>12}\n", line.name, line.bytes,
                        human_bytes(static_cast<double>(line.bytes)));
    sum += line.bytes;
  }
  return text + fmt::format("  {:<12} {:>16} {:>12}\n", "peak", sum, human_bytes(static_cast<double>(sum)));
}

}  // namespace triax
