#include "comm/hang_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <set>

namespace triax {
namespace {

using Call = RankRecord::Call;
constexpr size_t shown = 8;

bool is_message(CommOp op) {
  return op == CommOp::send || op == CommOp::recv;
}

std::string list(const std::vector<int>& ranks) {
  const size_t n = std::min(ranks.size(), shown);
  std::string text =
      fmt::format("{}", fmt::join(ranks.begin(), ranks.begin() + static_cast<int64_t>(n), ", "));
  if (ranks.size() > n) text += fmt::format(" and {} more", ranks.size() - n);
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", text);
}

std::string group_words(const CommGroup& group) {
  return fmt::format("group '{}' ({})", group.name, list(group.members));
}

/// Who keeps whom waiting, and why.
struct Edge {
  enum Why { silent, missing, differs, elsewhere } why;
  int waiter, blocker;
  const Call* call;   // of the waiter
  const Call* other;  // differs: the blocker's call of that number
};

class Analysis {
 public:
  explicit Analysis(const std::vector<RankRecord>& records) : records_(records) {
    for (const RankRecord& r : records_)
      if (const Call* call = r.answered ? r.waits_in() : nullptr) look(r, *call);
  }

  HangReport report() {
    HangReport result;
    for (const RankRecord& r : records_)
      if (r.answered && r.waits_in()) result.wait_seconds = std::max(result.wait_seconds, waited(r));
    std::set<int> culprits;
    for (const Edge& e : edges_)
      if (!waits(e.blocker)) culprits.insert(e.blocker);
    result.culprits.assign(culprits.begin(), culprits.end());
    result.announced = !culprits.empty();
    for (const int c : culprits) {
      const RankRecord& r = records_[static_cast<size_t>(c)];
      result.announced = result.announced && r.answered && !r.phase.empty();
      if (!r.phase.empty()) result.phase_seconds = std::max(result.phase_seconds, r.time - r.phase_since);
    }
    const size_t differences = tell_differences();
    for (size_t i = 0; i < result.culprits.size() && i < shown; ++i) tell_culprit(result.culprits[i]);
    if (result.culprits.size() > shown)
      line(fmt::format("and {} more ranks are missing", result.culprits.size() - shown));
    if (culprits.empty() && !differences) tell_circle();
    tell_others(culprits);
    result.text = text_;
    return result;
  }

 private:
  bool waits(int rank) const {
    const RankRecord& r = records_[static_cast<size_t>(rank)];
    return r.answered && r.waits_in();
  }
  static double waited(const RankRecord& r) { return std::max(r.time - r.since, 0.0); }
  void line(const std::string& words) { text_ += (text_.empty() ? "" : "\n") + words; }

  // What `r` has called in that group under that number: the collective, or the other side of a message.
  static const Call* find(const RankRecord& r, const Call& call, int peer) {
    for (const Call& other : std::views::reverse(r.calls)) {
      if (other.sequence != call.sequence || other.group->name != call.group->name ||
          other.group->members != call.group->members)
        continue;
      if (!is_message(call.op) && !is_message(other.op)) return &other;
      const CommOp counterpart = call.op == CommOp::send ? CommOp::recv : CommOp::send;
      if (is_message(call.op) && other.op == counterpart && other.detail == peer) return &other;
    }
    return nullptr;
  }

  // Its record holds later collectives of the group: it called this one before the record begins.
  static bool has_passed(const RankRecord& r, const Call& call) {
    return !is_message(call.op) && std::any_of(r.calls.begin(), r.calls.end(), [&](const Call& c) {
      return !is_message(c.op) && c.sequence > call.sequence && c.group->name == call.group->name &&
             c.group->members == call.group->members;
    });
  }

  void look(const RankRecord& r, const Call& call) {
    const std::vector<int>& members = call.group->members;
    const auto me = std::find(members.begin(), members.end(), r.rank);
    const int mine = static_cast<int>(me - members.begin());
    for (size_t m = 0; m < members.size(); ++m) {
      if (static_cast<int>(m) == mine || (is_message(call.op) && static_cast<int>(m) != call.detail))
        continue;
      if (members[m] < 0 || static_cast<size_t>(members[m]) >= records_.size()) continue;
      const RankRecord& other = records_[static_cast<size_t>(members[m])];
      if (!other.answered) {
        edges_.push_back({Edge::silent, r.rank, other.rank, &call, nullptr});
        continue;
      }
      const Call* theirs = find(other, call, mine);
      if (!theirs && has_passed(other, call)) continue;
      if (!theirs)
        edges_.push_back({Edge::missing, r.rank, other.rank, &call, nullptr});
      else if (theirs->type != call.type || theirs->count != call.count ||
               (!is_message(call.op) && (theirs->op != call.op || theirs->detail != call.detail) &&
                !(theirs->op == CommOp::split && call.op == CommOp::split)))
        edges_.push_back({Edge::differs, r.rank, other.rank, &call, theirs});
      else if (theirs->end == 0 && !other.waits_in())
        edges_.push_back({Edge::elsewhere, r.rank, other.rank, &call, nullptr});
    }
  }

  size_t tell_differences() {
    std::set<std::pair<const CommGroup*, uint64_t>> told;
    for (const Edge& e : edges_) {
      if (e.why != Edge::differs || told.size() == shown) continue;
      // Both sides see it: once is enough.
      if (waits(e.blocker) && e.blocker < e.waiter) continue;
      if (!told.insert({e.call->group.get(), e.call->sequence}).second) continue;
      line(fmt::format(
          "the ranks of {} differ: rank {} called {}, but rank {} called {}. All members must "
          "call the same operations with the same dtype and size in the same order",
          group_words(*e.call->group), e.waiter, describe(*e.call), e.blocker, describe(*e.other)));
    }
    return told.size();
  }

  // The wait that has lasted longest of those for this rank.
  const Edge* longest_for(int rank) const {
    const Edge* longest = nullptr;
    const auto seconds = [&](const Edge& e) { return waited(records_[static_cast<size_t>(e.waiter)]); };
    for (const Edge& e : edges_)
      if (e.blocker == rank && (!longest || seconds(e) > seconds(*longest))) longest = &e;
    return longest;
  }

  void tell_culprit(int rank) {
    const Edge& e = *longest_for(rank);
    if (e.why == Edge::differs) return;
    const RankRecord& waiter = records_[static_cast<size_t>(e.waiter)];
    const std::string call =
        describe(e.call->op, e.call->type, e.call->count, e.call->detail, e.call->sequence, e.call->place);
    line(fmt::format("rank {} is missing from {}{} in {}, in which rank {} has waited for {:.1f} s", rank,
                     is_message(e.call->op) ? "the other side of " : "", call, group_words(*e.call->group),
                     e.waiter, waited(waiter)));
    line(fmt::format("rank {} {}", rank, whereabouts(records_[static_cast<size_t>(rank)])));
  }

  std::string whereabouts(const RankRecord& r) const {
    const std::string at = r.step > 0 ? fmt::format(" in step {}", r.step) : "";
    if (!r.answered) {
      std::string text = "does not answer";
      if (!r.words.empty()) text += ": " + r.words;
      if (const Call* last = last_with(r.rank))
        text += fmt::format("; the last operation that others know it took part in: {}", describe(*last));
      return text;
    }
    if (const Call* call = r.waits_in())
      return fmt::format("has waited for {:.1f} s{} in {}", waited(r), at, describe(*call));
    const std::string after = r.calls.empty()
                                  ? " without any operation so far"
                                  : fmt::format("; its last operation: {}", describe(r.calls.back()));
    if (!r.phase.empty())
      return fmt::format("is {}, for {:.1f} s now{}", r.phase, r.time - r.phase_since, after);
    if (!r.words.empty()) return r.words + after;
    return r.since == 0 ? fmt::format("has been computing since it started{}", after)
                        : fmt::format("has been computing for {:.1f} s{}{}", waited(r), at, after);
  }

  // The operation with `rank` that ended last, in the records of the others.
  const Call* last_with(int rank) const {
    const Call* last = nullptr;
    for (const RankRecord& r : records_)
      for (const Call& c : r.calls) {
        const std::vector<int>& m = c.group->members;
        if (c.end == 0 || (last && c.end <= last->end)) continue;
        const bool with = is_message(c.op) ? static_cast<size_t>(c.detail) < m.size() &&
                                                 m[static_cast<size_t>(c.detail)] == rank
                                           : std::find(m.begin(), m.end(), rank) != m.end();
        if (with) last = &c;
      }
    return last;
  }

  // Nobody is to blame alone: all wait.
  void tell_circle() {
    size_t told = 0;
    for (const Edge& e : edges_) {
      if (e.why != Edge::missing || told++ >= shown) continue;
      line(fmt::format("rank {} waits in {} for rank {}, which has not called it and {}", e.waiter,
                       describe(*e.call), e.blocker, whereabouts(records_[static_cast<size_t>(e.blocker)])));
    }
    if (told) return line("the ranks wait for each other");
    std::set<std::string> hosts;
    for (const RankRecord& r : records_) hosts.insert(r.host);
    for (const RankRecord& r : records_) {
      if (!r.waits_in() || told++ >= shown) continue;
      line(fmt::format("rank {} on {} waits in {}, which all {} have called", r.rank, r.host,
                       describe(*r.waits_in()), group_words(*r.waits_in()->group)));
    }
    if (told)
      line(fmt::format(
          "no rank is missing: messages do not arrive{}",
          hosts.size() > 1 ? fmt::format("; look at the network between {}", fmt::join(hosts, ", ")) : ""));
  }

  // Ranks that wait at one place, a line for each place.
  void tell_others(const std::set<int>& culprits) {
    std::map<std::string, std::vector<int>> places;
    for (const RankRecord& r : records_)
      if (r.answered && r.waits_in() && !culprits.count(r.rank))
        places[fmt::format("{} at {} in group '{}'", name_of(r.waits_in()->op), r.waits_in()->place,
                           r.waits_in()->group->name)]
            .push_back(r.rank);
    size_t told = 0;
    for (const auto& [place, ranks] : places)
      if (told++ < shown) line(fmt::format("waiting in {}: {}", place, list(ranks)));
    std::vector<int> computing;
    for (const RankRecord& r : records_)
      if (r.answered && !r.waits_in() && !culprits.count(r.rank)) computing.push_back(r.rank);
    if (!computing.empty()) line(fmt::format("computing: {}", list(computing)));
  }

  const std::vector<RankRecord>& records_;
  std::vector<Edge> edges_;
  std::string text_;
};

}  // namespace

HangReport explain_hang(const std::vector<RankRecord>& records) {
  return Analysis(records).report();
}

}  // namespace triax
