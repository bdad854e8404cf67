#include "comm/ledger.h"

#include <fmt/format.h>

#include <numeric>

namespace triax {

namespace {

// total += sign * part, over their common denominator.
void accumulate(Recorder::Entry& total, const Recorder::Entry& part, int sign) {
  const int64_t common = std::lcm(total.denominator, part.denominator);
  total.numerator =
      total.numerator * (common / total.denominator) + sign * part.numerator * (common / part.denominator);
  total.denominator = common;
  total.calls += sign * part.calls;
  total.exposed_seconds += sign * part.exposed_seconds;
  total.hidden_seconds += sign * part.hidden_seconds;
  total.bytes = static_cast<double>(total.numerator) / static_cast<double>(common);
}

}  // namespace

Ledger difference(const Ledger& after, const Ledger& before) {
  Ledger out;
  for (const auto& [key, entry] : after) {
    Recorder::Entry rest = entry;
    if (const auto found = before.find(key); found != before.end()) accumulate(rest, found->second, -1);
    if (rest.calls) out[key] = rest;
  }
  return out;
}

void add(Ledger& sum, const Ledger& part) {
  for (const auto& [key, entry] : part) accumulate(sum[key], entry, 1);
}

bool same(const Recorder::Entry& a, const Recorder::Entry& b) {
  using Wide = __int128;
  return a.calls == b.calls &&
         static_cast<Wide>(a.numerator) * b.denominator == static_cast<Wide>(b.numerator) * a.denominator;
}

std::vector<std::string> disagreements(const Ledger& planned, const Ledger& counted) {
  std::vector<std::string> out;
  const auto compare = [&](const std::pair<std::string, CommOp>& key, const Recorder::Entry& plan,
                           const Recorder::Entry& count) {
    if (!same(plan, count))
      out.push_back(fmt::format("{} {}: {} calls, {:.2f} bytes planned; {} calls, {:.2f} bytes counted",
                                key.first, name_of(key.second), plan.calls, plan.bytes, count.calls,
                                count.bytes));
  };
  for (const auto& [key, entry] : planned) {
    const auto found = counted.find(key);
    compare(key, entry, found == counted.end() ? Recorder::Entry{} : found->second);
  }
  for (const auto& [key, entry] : counted)
    if (!planned.count(key)) compare(key, {}, entry);
  return out;
}

std::string seconds_table(const Ledger& ledger) {
  std::string text = fmt::format("  {:<12} {:<15} {:>9} {:>16} {:>9} {:>9}\n", "group", "operation", "calls",
                                 "bytes", "exposed", "hidden");
  double exposed = 0, hidden = 0;
  for (const auto& [key, entry] : ledger) {
    if (entry.bytes == 0 && entry.exposed_seconds < 5e-4) continue;
    text += fmt::format("  {:<12} {:<15} {:>9} {:>16.0f} {:>9.3f} {:>9.3f}\n", key.first, name_of(key.second),
                        entry.calls, entry.bytes, entry.exposed_seconds, entry.hidden_seconds);
    exposed += entry.exposed_seconds;
    hidden += entry.hidden_seconds;
  }
  return text + fmt::format("  {:<55} {:>9.3f} {:>9.3f}", "all", exposed, hidden);
}

}  // namespace triax
