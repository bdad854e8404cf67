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

}  // namespace triax
