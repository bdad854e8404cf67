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

std::string describe(CommOp op, std::string_view type, int64_t count, int detail, uint64_t sequence,
                     std::string_view place) {
  std::string with, of;
  switch (op) {
    case CommOp::all_reduce:
    case CommOp::reduce_scatter:
      with = static_cast<ReduceOp>(detail) == ReduceOp::sum ? "(sum)" : "(max)";
      break;
    case CommOp::broadcast:
    case CommOp::recv:
      with = fmt::format("(from {})", detail);
      break;
    case CommOp::send:
      with = fmt::format("(to {})", detail);
      break;
    default:
      break;
  }
  if (op != CommOp::barrier && op != CommOp::split) of = fmt::format(" of {}[{}]", type, count);
  return fmt::format("{}{} number {}{} at {}", name_of(op), with, sequence, of, place);
}

std::string describe(const CommCall& call) {
  return describe(call.op, name_of(call.dtype), call.count, call.detail, call.sequence,
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
                        call.group->name);
  }
  if (unfinished > shown) text += fmt::format(" and {} more", unfinished - shown);
  if (text.empty())
    text = fmt::format("has finished all its calls, the last one {} in group '{}'", describe(calls.back()),
                       calls.back().group->name);
  return text;
}

void Recorder::set_device_clock(DeviceClock* clock) {
  clock_ = clock;
  if (clock_) clock_->restart();
  clocked_.clear();
  marks_.clear();
  device_seconds_.clear();
  held_from_ = -1;
}

void Recorder::held_from(uint64_t ticket) {
  if (clocked_.count(ticket) == 0) return;
  held_ticket_ = ticket;
  held_from_ = clock_->mark();
}

void Recorder::held_until_now() {
  if (held_from_ >= 0)
    marks_.push_back({clocked_.at(held_ticket_), std::exchange(held_from_, -1), clock_->mark(), false});
}

std::map<std::pair<std::string, CommOp>, Recorder::DeviceSeconds> Recorder::take_device_seconds() {
  auto sums = std::exchange(device_seconds_, {});
  for (const Marks& m : marks_)
    (m.moving ? sums[m.operation].moving : sums[m.operation].held) += clock_->seconds(m.from, m.to);
  marks_.clear();
  if (clock_) clock_->restart();
  return sums;
}

void Recorder::set_phase(const char* phase) {
  position_.phase_since.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  position_.phase.store(phase, std::memory_order_release);
}

uint64_t Recorder::begin(const std::shared_ptr<const CommGroup>& group, const CommCall& call,
                         Clock::time_point now) {
  const double bytes = count(*group, call);
  if (trace_ && trace_->on())
    traced_[next_] =
        trace_->open(group->name, name_of(call.op), {{"bytes", static_cast<int64_t>(bytes)}}, true);
  if (!range_) range_ = begin_range(name_of(call.op), {{group->name, static_cast<int64_t>(bytes)}});
  if (clock_ && call.op != CommOp::barrier && call.op != CommOp::split) {
    const auto& operation = clocked_[next_] = {group->name, call.op};
    ++device_seconds_[operation].calls;
  }
  position_.op.store(call.op, std::memory_order_relaxed);
  position_.file.store(call.place.file_name(), std::memory_order_relaxed);
  position_.line.store(call.place.line(), std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  enter(next_, now);
  Call entry;
  static_cast<CommCall&>(entry) = call;
  entry.group = group;
  entry.ticket = next_;
  entry.start = now;
  if (ring_.size() < capacity)
    ring_.push_back(std::move(entry));
  else
    ring_[next_ % capacity] = std::move(entry);
  return next_++;
}

void Recorder::finish(uint64_t ticket, Clock::time_point now) {
  if (const auto traced = traced_.find(ticket); traced != traced_.end()) {
    trace_->close(traced->second);
    traced_.erase(traced);
  }
  clocked_.erase(ticket);
  std::lock_guard lock(mutex_);
  // A call that was started more than a ring ago has lost its place to a newer one.
  if (next_ - ticket > ring_.size()) return;
  ring_[ticket % capacity].done = true;
  ring_[ticket % capacity].end = now;
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

double Recorder::count(const CommGroup& group, const CommCall& call) {
  if (call.op == CommOp::split) return 0;
  const int64_t bytes = call.count * static_cast<int64_t>(size_of(call.dtype));
  const int64_t n = group.size;
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
  Entry& entry = ledger_[{group.name, call.op}];
  // One name may stand for groups of several sizes; their common denominator keeps the sum exact.
  const int64_t common = std::lcm(entry.denominator, n);
  entry.numerator = entry.numerator * (common / entry.denominator) + numerator * (common / n);
  entry.denominator = common;
  entry.calls += 1;
  entry.bytes = static_cast<double>(entry.numerator) / static_cast<double>(common);
  return static_cast<double>(numerator) / static_cast<double>(n);
}

}  // namespace triax
