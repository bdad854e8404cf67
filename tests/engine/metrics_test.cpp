#include "engine/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/crc32c.h"
#include "core/error.h"
#include "engine/resume.h"
#include "engine/tensorboard.h"

namespace triax {
namespace {

class Folder {
 public:
  Folder() { mkdtemp(path_.data()); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/tmp/triax-metrics-XXXXXX";
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void unexpected(const std::string& report) {
  ADD_FAILURE() << report;
}

// While it lives, no file of this process grows beyond so many bytes: a disk that is full.
class FullAt {
 public:
  explicit FullAt(size_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FullAt() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

StepMetrics step(int64_t n) {
  StepMetrics m;
  m.step = n;
  m.loss = 1.0 / 3.0 / static_cast<double>(n);
  m.grad_norm = 0.1;
  return m;
}

TEST(Metrics, SeventeenDigitsReadBackExactly) {
  StepMetrics m = step(7);
  m.validation_loss = 0.1 + 0.2;
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(json["loss"].get<double>(), m.loss);
  EXPECT_EQ(json["validation_loss"].get<double>(), 0.1 + 0.2);
  for (const char* key : {"step", "grad_norm", "lr", "tokens", "consumed_samples", "step_seconds",
                          "tokens_per_second", "tflops", "peak_bytes"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(step(1))).contains("validation_loss"));
}

TEST(Metrics, ResumedStepsStandOnceAndTornLinesGo) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, 0, unexpected);
    for (int n = 1; n <= 5; ++n) file.append(step(n));
  }
  std::ofstream(path, std::ios::app) << "{\"step\":6,\"lo";  // died while writing
  {
    MetricsFile file(path, 3, unexpected);
    file.append(step(4));
  }
  std::ifstream in(path);
  std::vector<int> steps;
  for (std::string line; std::getline(in, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3, 4}));
}

TEST(Metrics, AFullDiskCostsNoLineAndTearsNone) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  std::vector<std::string> reports;
  std::string expected, complaint;
  {
    MetricsFile file(path, 0, [&](const std::string& report) { reports.push_back(report); });
    const auto append = [&](int n) {
      file.append(step(n));
      expected += to_json_line(step(n)) + '\n';
    };
    append(1);
    const std::string first = expected;
    {
      const FullAt full(first.size() + 10);
      append(2);
      EXPECT_EQ(content(path), first);
      append(3);
      EXPECT_EQ(content(path), first);
    }
    EXPECT_EQ(reports.size(), 1U);
    append(4);
    EXPECT_EQ(content(path), expected);
    {
      const FullAt full(expected.size());
      append(5);
      errno = EACCES;  // an older failure's
      try {
        file.finish();
      } catch (const Error& error) {
        complaint = error.what();
      }
    }
    file.finish();
    EXPECT_EQ(content(path), expected);
    {
      const FullAt full(expected.size());
      append(6);
    }
  }  // as when a fault ends the run
  EXPECT_EQ(content(path), expected);
  ASSERT_EQ(reports.size(), 3U);  // one for each time that the disk was full
  EXPECT_NE(reports[0].find(path + ": File too large"), std::string::npos) << reports[0];
  EXPECT_NE(complaint.find(path + ": File too large"), std::string::npos) << complaint;
}

TEST(Metrics, ReasonsAreThoseOfTheFailure) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsFile(path, 0, unexpected).append(step(1));
  std::filesystem::create_symlink("/dev/full", path + ".new");
  errno = EACCES;  // an older failure's
  try {
    const MetricsFile file(path, 1, unexpected);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
  }
}

TEST(TensorBoard, AFullDiskCostsNoEvent) {
  const Folder folder;
  int reports = 0;
  std::string whole, after;
  for (const bool full : {false, true}) {
    TensorBoardFile file(folder / (full ? "full" : "free"), 1, [&](const std::string&) { ++reports; });
    file.append(step(1));
    {
      const FullAt limit(full ? content(file.path()).size() + 7 : 1000000);
      file.append(step(2));
    }
    file.append(step(3));
    file.finish();
    (full ? after : whole) = content(file.path());
  }
  EXPECT_EQ(reports, 1);
  EXPECT_EQ(after.size(), whole.size());
  EXPECT_EQ(after.substr(0, 12), whole.substr(0, 12));
}

// The framing that TensorBoard checks: length, its masked CRC, payload, its masked CRC.
TEST(TensorBoard, RecordsAreFramedAndChecksummed) {
  const Folder folder;
  std::string path;
  {
    TensorBoardFile file(folder / "tensorboard", 3, unexpected);
    file.append(step(3));
    path = file.path();
  }
  const std::string data = content(path);
  auto masked = [](const void* p, size_t n) {
    const uint32_t crc = crc32c(0, p, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8U;
  };
  size_t at = 0;
  std::vector<std::string> events;
  while (at < data.size()) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, data.data() + at, 8);
    std::memcpy(&crc, data.data() + at + 8, 4);
    EXPECT_EQ(crc, masked(data.data() + at, 8));
    events.push_back(data.substr(at + 12, length));
    std::memcpy(&crc, data.data() + at + 12 + length, 4);
    EXPECT_EQ(crc, masked(events.back().data(), length));
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 3U);  // version, session start, step 3
  EXPECT_NE(events[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(events[2].find("loss/train"), std::string::npos);
}

TEST(Resume, ChangesHaveThreeClasses) {
  RunConfig before, now;
  before.training.steps = before.lr_schedule.decay_steps = 10;
  now = before;
  EXPECT_TRUE(changes_on_resume(before, {}, now, {}).empty());
  now.training.steps = now.lr_schedule.decay_steps = 20;
  now.parallel.tensor = 4;
  now.training.micro_batch_size = 3;
  for (const ConfigChange& c : changes_on_resume(before, {}, now, {}))
    EXPECT_EQ(c.kind, ChangeClass::free) << c.key;
  EXPECT_NO_THROW(check_changes(changes_on_resume(before, {}, now, {}), false));

  now.optimizer.lr = 1e-4;
  auto changes = changes_on_resume(before, {}, now, {});
  EXPECT_NO_THROW(check_changes(changes, true));
  try {
    check_changes(changes, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("optimizer.lr"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--accept-changes"), std::string::npos);
  }
  now.model.hidden_size = 12;
  EXPECT_THROW(check_changes(changes_on_resume(before, {}, now, {}), true), Error);
}

TEST(Resume, WhatFollowsFromTheStepsIsAsFreeAndListed) {
  RunConfig before, now;
  before.lr_schedule.name = now.lr_schedule.name = "wsd";
  const auto derive = [](RunConfig& c, int64_t steps) {
    c.training.steps = c.lr_schedule.decay_steps = steps;
    c.lr_schedule.decay_start = default_decay_start(c.lr_schedule);
  };
  derive(before, 100);
  derive(now, 200);
  EXPECT_EQ(describe(changes_on_resume(before, {}, now, {})),
            "  free, how it is computed:\n"
            "    lr_schedule.decay_start: 90 -> 180 (follows training.steps)\n"
            "    lr_schedule.decay_steps: 100 -> 200 (follows training.steps)\n"
            "    training.steps: 100 -> 200\n");
  now.lr_schedule.decay_start = 50;  // written down
  EXPECT_THROW(check_changes(changes_on_resume(before, {}, now, {}), false), Error);
}

TEST(Resume, OnlyShapesAreImpossibleAndOnlyWhatTheArchitectureUsesCounts) {
  const auto kinds = [](Architecture architecture, auto change) {
    RunConfig before, now;
    before.model.architecture = now.model.architecture = architecture;
    change(now.model);
    std::vector<ChangeClass> out;
    for (const ConfigChange& c : changes_on_resume(before, {}, now, {})) out.push_back(c.kind);
    return out;
  };
  using Kinds = std::vector<ChangeClass>;
  const Kinds none, mathematics{ChangeClass::mathematics}, impossible{ChangeClass::impossible};
  constexpr auto gpt2 = Architecture::gpt2, llama = Architecture::llama;
  const auto positions = [](ModelConfig& m) { m.max_position_embeddings = 99; };
  const auto theta = [](ModelConfig& m) { m.rope_theta = 5e5; };
  const auto rms = [](ModelConfig& m) { m.rms_norm_eps = 1e-6; };
  const auto layer_norm = [](ModelConfig& m) { m.layer_norm_epsilon = 1e-6; };
  EXPECT_EQ(kinds(llama, positions), mathematics);
  EXPECT_EQ(kinds(gpt2, positions), impossible);  // learned
  EXPECT_EQ(kinds(llama, theta), mathematics);
  EXPECT_EQ(kinds(gpt2, theta), none);
  EXPECT_EQ(kinds(llama, rms), mathematics);
  EXPECT_EQ(kinds(gpt2, rms), none);
  EXPECT_EQ(kinds(llama, layer_norm), none);
  EXPECT_EQ(kinds(gpt2, layer_norm), mathematics);
  EXPECT_EQ(kinds(llama, [](ModelConfig& m) { m.vocab_size = 3; }), impossible);
}

TEST(Resume, ChangesAreListedByClass) {
  const std::string text = describe({{"optimizer.lr", "1", "2", ChangeClass::mathematics},
                                     {"parallel.data", "1", "4", ChangeClass::free},
                                     {"name", "a", "b", ChangeClass::free}});
  EXPECT_EQ(text,
            "  free, how it is computed:\n    parallel.data: 1 -> 4\n    name: a -> b\n"
            "  mathematics, what is computed:\n    optimizer.lr: 1 -> 2\n");
  EXPECT_EQ(describe({}), "");
}

TEST(Resume, DataIsComparedByContent) {
  RunConfig before, now;
  before.data.train = {{"/a.txt", 1.0}};
  now.data.train = {{"/b.txt", 1.0}};
  EXPECT_TRUE(changes_on_resume(before, {{"train.0", "x"}}, now, {{"train.0", "x"}}).empty());
  const auto changes = changes_on_resume(before, {{"train.0", "x"}}, now, {{"train.0", "y"}});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].kind, ChangeClass::mathematics);
}

}  // namespace
}  // namespace triax
