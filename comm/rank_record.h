#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/recorder.h"

namespace triax {

/// What one rank has to say about its communication when something hangs: where it is, and its latest calls.
/// Times are seconds since the epoch, 0 for none. Written as a file of JSON lines, a header and a line per
/// call (docs/hangs.md), so that ranks can tell each other when messages get through no more.
struct RankRecord {
  struct Call {
    CommOp op = CommOp::barrier;
    std::string type;  ///< of the elements, "f32"
    int64_t count = 0;
    int detail = 0;  ///< as in CommCall
    uint64_t sequence = 0;
    std::string place;  ///< "room/file.cpp:123"
    std::shared_ptr<const CommGroup> group;
    double start = 0, end = 0;
  };
  int rank = 0, ranks = 1;  ///< of the world
  std::string host;
  int64_t pid = 0;
  std::string run;      ///< the start of the job that it belongs to
  int64_t inquiry = 0;  ///< the question that it answers, from 1; 0: none
  double time = 0;      ///< when it was taken
  int64_t step = 0;     ///< the step under way
  std::string phase;    ///< announced, see Recorder::set_phase
  double phase_since = 0;
  int64_t inside = -1;      ///< the call (an index of `calls`) in which the rank waits; -1: in none
  double since = 0;         ///< when it entered that call, or left the last one
  std::vector<Call> calls;  ///< oldest first

  bool answered = true;  ///< false: nobody has heard of it
  std::string words;     ///< what else is known of it

  const Call* waits_in() const { return inside < 0 ? nullptr : &calls[static_cast<size_t>(inside)]; }
};

/// "all_reduce(sum) number 17 of f32[1000] at engine/trainer.cpp:120 in group 'tp'".
std::string describe(const RankRecord::Call& call);

/// Of a rank of this process, at this moment; from any thread.
RankRecord take_record(const Recorder& recorder, int rank, int ranks);

/// "<folder>/collectives-rank-00003.jsonl".
std::string record_path(const std::string& folder, int rank);
/// Replaces the file atomically; throws when it can't be written.
void write_record(const std::string& folder, const RankRecord& record);
/// Nothing when there is no such file, or it is no whole record.
std::optional<RankRecord> read_record(const std::string& folder, int rank);

}  // namespace triax
