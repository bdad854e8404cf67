#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/recorder.h"

namespace triax {

/// (group, operation) -> calls and bytes, as Recorder::ledger() keeps them.
using Ledger = std::map<std::pair<std::string, CommOp>, Recorder::Entry>;

/// What was counted between two readings of one ledger, exactly; what was not called is left out.
Ledger difference(const Ledger& after, const Ledger& before);

/// Adds up, exactly: over steps or over ranks.
void add(Ledger& sum, const Ledger& part);

/// Same calls and, as fractions, the same bytes.
bool same(const Recorder::Entry& a, const Recorder::Entry& b);

/// One sentence for every entry that differs: "tp all_reduce: 12 calls of 4096 bytes planned, 11 of 3072
/// counted". Empty when the ledgers agree.
std::vector<std::string> disagreements(const Ledger& planned, const Ledger& counted);

/// A line per entry: group, operation, calls, bytes, seconds exposed and hidden (see Recorder::Entry); and
/// their sum. Entries without bytes and without half a millisecond are left out.
std::string seconds_table(const Ledger& ledger);

}  // namespace triax
