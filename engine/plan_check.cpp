#include "engine/plan_check.h"

#include <fmt/format.h>

namespace triax {

void PlanCheck::end_step(int64_t step, bool compared_replicas) {
  const Ledger sent = difference(recorder_->ledger(), before_);
  const Ledger planned = plan_->bytes_of_step(compared_replicas);
  add(measured_, sent);
  add(planned_, planned);
  ++steps_;
  if (!first_fault_.empty()) return;
  for (const std::string& line : disagreements(planned, sent))
    first_fault_.push_back(fmt::format("step {}: {}", step, line));
}

void PlanCheck::end_window(int64_t step) {
  if (!first_fault_.empty()) return;
  for (const std::string& line :
       disagreements(plan_->bytes_per_window, difference(recorder_->ledger(), before_)))
    first_fault_.push_back(fmt::format("after step {}: {}", step, line));
}

std::vector<std::string> PlanCheck::faults(size_t measured_peak) const {
  std::vector<std::string> list = first_fault_;
  if (measured_peak != plan_->peak_bytes)
    list.push_back(
        fmt::format("peak memory: {} bytes planned, {} measured", plan_->peak_bytes, measured_peak));
  return list;
}

std::string PlanCheck::table(size_t measured_peak) const {
  std::string text = fmt::format("  {:<28} {:>20} {:>20}\n", "", "planned", "measured");
  const auto line = [&](const std::string& what, double planned, double measured) {
    text += fmt::format("  {:<28} {:>20.0f} {:>20.0f}\n", what, planned, measured);
  };
  line("peak memory", static_cast<double>(plan_->peak_bytes), static_cast<double>(measured_peak));
  for (const auto& [key, entry] : planned_) {
    if (entry.bytes == 0) continue;
    const auto found = measured_.find(key);
    line(fmt::format("{} {}", key.first, name_of(key.second)), entry.bytes,
         found == measured_.end() ? 0 : found->second.bytes);
  }
  return text;
}

nlohmann::json PlanCheck::communication() const {
  nlohmann::json list = nlohmann::json::array();
  Ledger all = plan_->bytes_per_step;
  all.insert(measured_.begin(), measured_.end());  // what was not planned stands there too
  for (const auto& [key, entry] : all) {
    const auto planned = plan_->bytes_per_step.find(key);
    const auto found = measured_.find(key);
    const Recorder::Entry counted = found == measured_.end() ? Recorder::Entry{} : found->second;
    list.push_back(
        {{"group", key.first},
         {"operation", std::string(name_of(key.second))},
         {"calls", counted.calls},
         {"planned",
          planned == plan_->bytes_per_step.end() ? 0 : planned->second.bytes * static_cast<double>(steps_)},
         {"counted", counted.bytes},
         {"exposed_seconds", counted.exposed_seconds},
         {"hidden_seconds", counted.hidden_seconds}});
  }
  return list;
}

}  // namespace triax
