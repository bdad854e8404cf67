#include "engine/plan.h"

#include <algorithm>
#include <cctype>

#include "core/null_device.h"
#include "engine/stragglers.h"
#include "model/gpt.h"

namespace triax {

namespace {

// "layers.12.mlp.up.weight" -> "layers.*.mlp.up.weight"
std::string without_number(const std::string& name) {
  constexpr std::string_view prefix = "layers.";
  if (name.rfind(prefix, 0) != 0) return name;
  size_t end = prefix.size();
  while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
  return std::string(prefix) + "*" + name.substr(end);
}

void collect(std::vector<PlannedTensors>& list, const std::string& full_name, const Shape& shape,
             DType dtype) {
  const std::string name = without_number(full_name);
  auto place = std::find_if(list.begin(), list.end(), [&](const PlannedTensors& t) {
    return t.name == name && t.shape == shape && t.dtype == dtype;
  });
  if (place == list.end()) place = list.insert(list.end(), {name, shape, dtype, 0, 0});
  ++place->count;
  place->bytes += static_cast<size_t>(shape.numel()) * size_of(dtype);
}

std::vector<PlannedTensors> weights_of(const ParamStore& params) {
  std::vector<PlannedTensors> list;
  for (const auto& entry : params.entries())
    if (entry.primary < 0) collect(list, entry.spec.name, entry.memory, params.weights().dtype());
  return list;
}

std::vector<PlannedTensors> slot_of(const Chunk& chunk) {
  std::vector<PlannedTensors> list;
  for (const auto& entry : chunk.slot().entries()) collect(list, entry.name, entry.shape, entry.dtype);
  return list;
}

}  // namespace

double RankPlan::flops() const {
  double sum = 0;
  for (const PlannedWork& w : work)
    if (w.kernel.rfind("gemm", 0) == 0 || w.kernel.rfind("attention", 0) == 0)
      sum += w.flops * static_cast<double>(w.calls);
  return sum;
}

Ledger RankPlan::bytes_of_step(bool compares_replicas) const {
  Ledger bytes = bytes_per_step;
  if (compares_replicas) add(bytes, bytes_per_comparison);
  return bytes;
}

size_t RankPlan::device_bytes() const {
  size_t sum = peak_bytes;
  for (const MemoryLine& line : memory)
    if (line.on_host) sum -= line.bytes;
  return sum;
}

Kernels planning_kernels(const RunConfig& config) {
  return config.training.device == "cuda" ? null_cuda_kernels() : null_kernels(cpu_kernels());
}

RankPlan plan_rank(const RunConfig& config, int rank, const Kernels* kernels) {
  const Kernels planned = kernels ? null_kernels(*kernels) : planning_kernels(config);
  NullDevice device;
  Mesh mesh = Mesh::planned(grid_of(config), rank, mesh_needs(config));
  RunConfig usual = config;
  usual.logging.check_replicas = 0;
  Trainer trainer(usual, mesh, device, planned, 0);
  RankPlan plan;
  plan.rank = rank;
  ExactSum unused;
  trainer.evaluate(unused);
  mesh.world().recorder().clear();
  device.forget();
  trainer.step(1, {});
  plan.bytes_per_step = mesh.world().recorder().ledger();
  if (config.logging.check_replicas > 0) {
    mesh.world().recorder().clear();
    trainer.compare_replicas(0);
    plan.bytes_per_comparison = mesh.world().recorder().ledger();
  }
  if (compares_times(config)) {
    mesh.world().recorder().clear();
    share_times(mesh.world(), {});
    plan.bytes_per_window = mesh.world().recorder().ledger();
  }
  for (const auto& [work, calls] : device.work())
    plan.work.push_back({std::get<0>(work), std::get<1>(work), std::get<2>(work), calls});
  plan.memory = trainer.memory();
  plan.scratch_bytes = trainer.scratch_high_water();
  plan.peak_bytes = trainer.peak_bytes();
  plan.parameters = trainer.params().elements();
  plan.weights = weights_of(trainer.params());
  plan.in_flight = trainer.stage().slot_count();
  plan.lent_bytes = trainer.stage().lent_bytes();
  plan.slot_bytes = trainer.stage().slot_arena().bytes() / static_cast<size_t>(std::max(1, plan.in_flight)) +
                    plan.lent_bytes;
  for (const Chunk& chunk : trainer.stage().chunks()) plan.slot_tensors.push_back(slot_of(chunk));
  plan.groups = mesh.planned_groups();
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
