#include "checkpoint/state.h"

#include <fmt/format.h>

namespace triax {

std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::weight:
      return "weight";
    case StateKind::exp_avg:
      return "exp_avg";
    case StateKind::exp_avg_sq:
      return "exp_avg_sq";
  }
  fail("state kind {} is unknown", static_cast<int>(kind));
}

StateKind state_kind(std::string_view name) {
  for (StateKind kind : {StateKind::weight, StateKind::exp_avg, StateKind::exp_avg_sq})
    if (name == name_of(kind)) return kind;
  fail("'{}' is no kind of state; it can be weight, exp_avg or exp_avg_sq", name);
}

std::string logical_path(StateKind kind, std::string_view name) {
  if (kind == StateKind::weight) return fmt::format("model/{}", name);
  return fmt::format("optimizer/{}/{}", name, name_of(kind));
}

}  // namespace triax
