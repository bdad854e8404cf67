#include "comm/hang_report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "comm/local_ranks.h"
#include "core/process.h"
#include "support/comm_exercise.h"

namespace triax {
namespace {

namespace fs = std::filesystem;
using exercise::view;

using Group = std::shared_ptr<const CommGroup>;

Group group(const std::string& name, std::vector<int> members) {
  const int size = static_cast<int>(members.size());
  return std::make_shared<const CommGroup>(CommGroup{name, size, std::move(members)});
}

RankRecord::Call call(CommOp op, const Group& g, uint64_t sequence, double start, double end,
                      int detail = 0) {
  return {op, "f32", 8, detail, sequence, "optim/optimizer.cpp:88", g, start, end};
}

// A job of `n` ranks, each of which has done one barrier of all at second 100; the records are taken at 720.
std::vector<RankRecord> ranks(int n) {
  std::vector<int> all;
  for (int r = 0; r < n; ++r) all.push_back(r);
  const Group world = group("world", all);
  std::vector<RankRecord> records(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r) {
    RankRecord& record = records[static_cast<size_t>(r)];
    record.rank = r;
    record.ranks = n;
    record.host = "h1";
    record.time = 720;
    record.step = 42;
    record.since = 101;
    record.calls = {call(CommOp::barrier, world, 0, 100, 101)};
  }
  return records;
}

void wait_in(RankRecord& record, const RankRecord::Call& c) {
  record.inside = static_cast<int64_t>(record.calls.size());
  record.since = c.start;
  record.calls.push_back(c);
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in\n" << text;
}

TEST(HangReport, NamesTheRankThatIsMissingFromACollectiveAndThatItComputes) {
  auto r = ranks(4);
  const Group dp = group("dp", {1, 3});
  wait_in(r[1], call(CommOp::all_reduce, dp, 41, 110, 0));
  // The other pair waits for the first one, in an operation of all.
  for (int i : {0, 2})
    wait_in(r[static_cast<size_t>(i)], call(CommOp::barrier, r[0].calls[0].group, 1, 115, 0));
  const HangReport report = explain_hang(r);
  EXPECT_EQ(report.culprits, std::vector<int>{3});
  EXPECT_FALSE(report.announced);
  EXPECT_EQ(report.wait_seconds, 610);
  expect_words(
      report.text,
      {"rank 3 is missing from all_reduce(sum) number 41 of f32[8] at optim/optimizer.cpp:88 in group "
       "'dp' (ranks 1, 3), in which rank 1 has waited for 610.0 s",
       "rank 3 has been computing for 619.0 s in step 42; its last operation: barrier number 0",
       "waiting in barrier at optim/optimizer.cpp:88 in group 'world': ranks 0, 2"});
  EXPECT_EQ(report.text.find("rank 1 is missing"), std::string::npos) << "only follows\n" << report.text;
}

TEST(HangReport, OfAMessageNamesThePeerAndItsOtherSide) {
  auto r = ranks(2);
  const Group pp = group("pp", {0, 1});
  wait_in(r[1], call(CommOp::recv, pp, 3, 110, 0, 0));
  HangReport report = explain_hang(r);
  EXPECT_EQ(report.culprits, std::vector<int>{0});
  expect_words(report.text,
               {"rank 0 is missing from the other side of recv(from 0) number 3", "rank 1 has waited"});
  // It has sent the message and computes: MPI moves long ones only while both sides call it.
  r[0].calls.push_back(call(CommOp::send, pp, 3, 109, 0, 1));
  EXPECT_EQ(explain_hang(r).culprits, std::vector<int>{0});
}

TEST(HangReport, TellsWhatIsKnownOfARankThatDoesNotAnswer) {
  auto r = ranks(3);
  const Group world = r[0].calls[0].group;
  for (int i : {0, 2}) wait_in(r[static_cast<size_t>(i)], call(CommOp::all_reduce, world, 7, 110, 0));
  r[1] = {};
  r[1].rank = 1;
  r[1].answered = false;
  r[1].words = "process 77 is stopped (SIGSTOP, or a debugger)";
  const HangReport report = explain_hang(r);
  EXPECT_EQ(report.culprits, std::vector<int>{1});
  expect_words(report.text, {"rank 1 is missing from all_reduce(sum) number 7",
                             "rank 1 does not answer: process 77 is stopped",
                             "the last operation that others know it took part in: barrier number 0"});
}

TEST(HangReport, TellsCallsThatDoNotFit) {
  auto r = ranks(3);
  const Group world = r[0].calls[0].group;
  for (int i : {0, 1}) wait_in(r[static_cast<size_t>(i)], call(CommOp::all_reduce, world, 7, 110, 0));
  wait_in(r[2], call(CommOp::broadcast, world, 7, 111, 0));
  expect_words(
      explain_hang(r).text,
      {"the ranks of group 'world' (ranks 0, 1, 2) differ: rank 0 called all_reduce(sum) number 7 of "
       "f32[8] at optim/optimizer.cpp:88 in group 'world', but rank 2 called broadcast(from 0) number 7"});
}

TEST(HangReport, TellsACircleOfWaits) {
  auto r = ranks(2);
  const Group pp = group("pp", {0, 1});
  wait_in(r[0], call(CommOp::recv, pp, 0, 110, 0, 1));
  wait_in(r[1], call(CommOp::recv, pp, 0, 111, 0, 0));
  const HangReport report = explain_hang(r);
  EXPECT_TRUE(report.culprits.empty());
  expect_words(report.text, {"rank 0 waits in recv(from 1) number 0",
                             "for rank 1, which has not called it and has "
                             "waited for 609.0 s in step 42 in recv(from 0)",
                             "the ranks wait for each other"});
}

TEST(HangReport, BlamesTheNetworkWhenAllHaveCalled) {
  auto r = ranks(2);
  r[1].host = "h2";
  for (auto& record : r) wait_in(record, call(CommOp::all_reduce, r[0].calls[0].group, 9, 110, 0));
  const HangReport report = explain_hang(r);
  EXPECT_TRUE(report.culprits.empty());
  expect_words(report.text,
               {"no rank is missing: messages do not arrive; look at the network between h1, h2"});
}

TEST(HangReport, AnAnnouncedPhaseIsAReason) {
  auto r = ranks(2);
  wait_in(r[1], call(CommOp::barrier, r[0].calls[0].group, 1, 110, 0));
  r[0].phase = "saving a checkpoint";
  r[0].phase_since = 120;
  const HangReport report = explain_hang(r);
  EXPECT_TRUE(report.announced);
  EXPECT_EQ(report.phase_seconds, 600);
  expect_words(report.text, {"rank 0 is saving a checkpoint, for 600.0 s now; its last operation: barrier"});
}

TEST(RankRecord, IsReadAsItWasWritten) {
  const fs::path dir = fs::temp_directory_path() / ("triax-record-" + std::to_string(getpid()));
  fs::create_directories(dir);
  run_local_ranks(2, {}, [&](Communicator& world, int rank) {
    auto half = world.split(0, "half");
    std::vector<float> x(10);
    world.recorder().set_step(5);
    if (rank == 1) half->recv(view(x), 0).wait();
    if (rank == 0) {
      // While rank 1 is inside of its receive.
      while (world.recorder().position().step != 5) {
      }
      RankRecord r = take_record(world.recorder(), rank, 2);
      r.run = "abc";
      r.inquiry = 3;
      write_record(dir, r);
      half->send(view(x), 1).wait();
      const RankRecord back = read_record(dir, 0).value();
      EXPECT_EQ(back.run, "abc");
      EXPECT_EQ(back.inquiry, 3);
      EXPECT_EQ(back.step, 5);
      EXPECT_EQ(back.pid, own_process().pid);
      EXPECT_EQ(back.waits_in(), nullptr);
      ASSERT_EQ(back.calls.size(), r.calls.size());
      EXPECT_EQ(describe(back.calls.back()), describe(r.calls.back()));
      EXPECT_EQ(back.calls.back().group->members, (std::vector<int>{0, 1}));
      EXPECT_GT(back.calls.back().start, 1.7e9);
      EXPECT_GE(back.calls.back().end, back.calls.back().start);
      // A file that was cut off is no record.
      fs::resize_file(record_path(dir, 0), fs::file_size(record_path(dir, 0)) - 10);
      EXPECT_FALSE(read_record(dir, 0));
      EXPECT_FALSE(read_record(dir, 1));
    }
  });
  fs::remove_all(dir);
}

}  // namespace
}  // namespace triax
