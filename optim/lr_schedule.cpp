#include "optim/lr_schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace triax {
namespace {

// What is left of lr - min_lr when the share x of the decay has passed; from 1 to 0.
struct Decay {
  std::string_view name;
  double (*left)(double x);
};

constexpr Decay decays[] = {
    {"constant", nullptr},
    {"linear", [](double x) { return 1.0 - x; }},
    {"cosine", [](double x) { return 0.5 * (1.0 + std::cos(std::numbers::pi * x)); }},
    {"wsd", [](double x) { return 1.0 - x; }},
};

const Decay& decay_of(const LrScheduleConfig& schedule) {
  std::vector<std::string_view> names;
  for (const Decay& decay : decays) {
    if (decay.name == schedule.name) return decay;
    names.push_back(decay.name);
  }
  fail_usage("lr_schedule.name: '{}' is unknown; it can be {}", schedule.name, fmt::join(names, ", "));
}

}  // namespace

double learning_rate(const LrScheduleConfig& schedule, const OptimizerConfig& optimizer, int64_t step,
                     int64_t total_steps) {
  check(step >= 1, "the learning rate of step {}; steps count from 1", step);
  const Decay& decay = decay_of(schedule);
  const double lr = optimizer.lr;
  if (step <= schedule.warmup_steps)
    return lr * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  if (!decay.left) return lr;

  const int64_t end = schedule.decay_steps > 0 ? schedule.decay_steps : total_steps;
  int64_t start = schedule.warmup_steps;
  if (decay.name == "wsd")
    start = std::max(start, schedule.decay_start > 0 ? schedule.decay_start : end - end / 10);
  if (step <= start) return lr;  // the stable part of wsd
  if (step >= end) return schedule.min_lr;
  const double x = static_cast<double>(step - start) / static_cast<double>(end - start);
  return schedule.min_lr + (lr - schedule.min_lr) * decay.left(x);
}

}  // namespace triax
