#include "comm/recorder.h"

#include <algorithm>
#include <numeric>

#include "comm/communicator.h"

namespace triax {

std::string_view name_of(CommOp op) {
  switch (op) {
    case CommOp::all_reduce:
      return "all_reduce";
    case CommOp::all_gather:
      return "all_gather";
    case CommOp::reduce_scatter:
      return "reduce_scatter";
    case CommOp::broadcast:
      return "broadcast";
    case CommOp::send:
      return "send";
    case CommOp::recv:
      return "recv";
    case CommOp::barrier:
      return "barrier";
    case CommOp::split:
      return "split";
  }
  return "?";
}

std::string describe(const CommCall& call) {
  std::string detail, of;
  switch (call.op) {
    case CommOp::all_reduce:
    case CommOp::reduce_scatter:
      detail = static_cast<ReduceOp>(call.detail) == ReduceOp::sum ? "(sum)" : "(max)";
      break;
    case CommOp::broadcast:
      detail = fmt::format("(from {})", call.detail);
      break;
    case CommOp::send:
      detail = fmt::format("(to {})", call.detail);
      break;
    case CommOp::recv:
      detail = fmt::format("(from {})", call.detail);
      break;
    default:
      break;
  }
  if (call.op != CommOp::barrier && call.op != CommOp::split)
    of = fmt::format(" of {}[{}]", name_of(call.dtype), call.count);
  return fmt::format("{}{} number {}{} at {}", name_of(call.op), detail, call.sequence, of,
                     to_string(call.place));
}

std::vector<Recorder::Call> Recorder::recent() const {
  std::lock_guard lock(mutex_);
  std::vector<Call> calls;
  calls.reserve(ring_.size());
  const uint64_t first = next_ - ring_.size();
  for (uint64_t i = first; i != next_; ++i) calls.push_back(ring_[i % capacity]);
  return calls;
}

std::string Recorder::whereabouts() const {
  const std::vector<Call> calls = recent();
  if (calls.empty()) return "has made no call yet";
  constexpr size_t shown = 3;
  std::string text;
  size_t unfinished = 0;
  for (const Call& call : calls) {
    if (call.done || ++unfinished > shown) continue;
    text += fmt::format("{}{} in group '{}'", text.empty() ? "has not finished " : ", ", describe(call),
                        call.group);
  }
  if (unfinished > shown) text += fmt::format(" and {} more", unfinished - shown);
  if (text.empty())
    text = fmt::format("has finished all its calls, the last one {} in group '{}'", describe(calls.back()),
                       calls.back().group);
  return text;
}

uint64_t Recorder::begin(const std::string& group, int group_size, const CommCall& call) {
  const double bytes = count(group, group_size, call);
  if (trace_ && trace_->on())
    traced_[next_] = trace_->open(group, name_of(call.op), {{"bytes", static_cast<int64_t>(bytes)}}, true);
  std::lock_guard lock(mutex_);
  Call entry;
  static_cast<CommCall&>(entry) = call;
  entry.group = group;
  entry.group_size = group_size;
  if (ring_.size() < capacity)
    ring_.push_back(std::move(entry));
  else
    ring_[next_ % capacity] = std::move(entry);
  return next_++;
}

void Recorder::finish(uint64_t ticket) {
  if (const auto traced = traced_.find(ticket); traced != traced_.end()) {
    trace_->close(traced->second);
    traced_.erase(traced);
  }
  std::lock_guard lock(mutex_);
  // A call that was started more than a ring ago has lost its place to a newer one.
  if (next_ - ticket <= ring_.size()) ring_[ticket % capacity].done = true;
}

void Recorder::add_seconds(const std::pair<std::string, CommOp>& operation, double exposed, double hidden) {
  exposed_ += exposed;
  hidden_ += hidden;
  // Not an operation that was started before the last clear().
  const auto found = ledger_.find(operation);
  if (found == ledger_.end()) return;
  found->second.exposed_seconds += exposed;
  found->second.hidden_seconds += hidden;
}

double Recorder::count(const std::string& group, int group_size, const CommCall& call) {
  if (call.op == CommOp::split) return 0;
  const int64_t bytes = call.count * static_cast<int64_t>(size_of(call.dtype));
  const int64_t n = group_size;
  int64_t numerator = 0;
  switch (call.op) {
    case CommOp::all_reduce:
      numerator = 2 * (n - 1) * bytes;
      break;
    case CommOp::all_gather:
    case CommOp::reduce_scatter:
    case CommOp::broadcast:
      numerator = (n - 1) * bytes;
      break;
    case CommOp::send:
      numerator = n * bytes;
      break;
    default:
      break;
  }
  Entry& entry = ledger_[{group, call.op}];
  // One name may stand for groups of several sizes; their common denominator keeps the sum exact.
  const int64_t common = std::lcm(entry.denominator, n);
  entry.numerator = entry.numerator * (common / entry.denominator) + numerator * (common / n);
  entry.denominator = common;
  entry.calls += 1;
  entry.bytes = static_cast<double>(entry.numerator) / static_cast<double>(common);
  return static_cast<double>(numerator) / static_cast<double>(n);
}

}  // namespace triax
