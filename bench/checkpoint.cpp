#include "bench/checkpoint.h"

#include <fcntl.h>
#include <fmt/ostream.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/step.h"
#include "checkpoint/background.h"
#include "checkpoint/file_io.h"
#include "checkpoint/reader.h"
#include "comm/local_ranks.h"
#include "core/rng.h"
#include "engine/job.h"
#include "engine/plan.h"
#include "engine/state.h"

namespace triax {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A folder that goes again.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& parent)
      : path_(fs::absolute(parent) / fmt::format("triax-bench-{}", ::getpid())) {
    fs::create_directories(path_);
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Takes a file's pages, which are on the disk already, out of memory.
void forget(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY);
  check(fd >= 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "can't forget {}", file.string());
  ::close(fd);
}

/// A state of matrices, whose rows are spread over the ranks.
class State {
 public:
  State(int64_t bytes, int ranks) : ranks_(ranks) {
    const int64_t rows = std::max<int64_t>(bytes / (tensors * 4 * columns), ranks);
    shape_ = {rows, columns};
    data_.resize(static_cast<size_t>(tensors * rows * columns));
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<float>(i % 8191) * 0.37F;
  }
  int64_t bytes() const { return static_cast<int64_t>(data_.size() * sizeof(float)); }
  const float* data() const { return data_.data(); }
  std::vector<StatePiece> pieces(int rank) {
    const int64_t first = shape_[0] * rank / ranks_, end = shape_[0] * (rank + 1) / ranks_;
    std::vector<StatePiece> list;
    list.reserve(tensors);
    for (int t = 0; t < tensors; ++t)
      list.push_back({StateKind::weight, fmt::format("matrix.{}", t), shape_,
                      Box{{first, 0}, {end - first, columns}},
                      data_.data() + (t * shape_[0] + first) * columns});
    return list;
  }

 private:
  static constexpr int64_t tensors = 24, columns = 1024;
  int ranks_;
  Shape shape_;
  std::vector<float> data_;
};

double plain_write(const fs::path& file, const State& state) {
  const auto start = Clock::now();
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  check(fd >= 0, "can't create {}: {}", file.string(), errno_text(errno));
  const auto* data = reinterpret_cast<const char*>(state.data());
  for (int64_t at = 0; at < state.bytes();) {
    const ssize_t n =
        ::write(fd, data + at, static_cast<size_t>(std::min<int64_t>(state.bytes() - at, 1 << 20)));
    check(n > 0, "writing {} failed: {}", file.string(), errno_text(errno));
    at += n;
  }
  check(::fsync(fd) == 0, "fsync of {} failed: {}", file.string(), errno_text(errno));
  ::close(fd);
  return seconds_since(start);
}

double plain_read(const fs::path& file) {
  forget(file);
  std::vector<char> buffer(1 << 20);
  const auto start = Clock::now();
  const int fd = ::open(file.c_str(), O_RDONLY);
  check(fd >= 0, "can't open {}: {}", file.string(), errno_text(errno));
  while (::read(fd, buffer.data(), buffer.size()) > 0) {
  }
  ::close(fd);
  return seconds_since(start);
}

// Runs `body` on the ranks and returns the seconds from the first to the last.
template <class Body>
double time_ranks(int ranks, const Body& body) {
  double seconds = 0;
  run_local_ranks(ranks, {}, [&](Communicator& world, int rank) {
    world.barrier();
    const auto start = Clock::now();
    body(world, rank);
    world.barrier();
    if (rank == 0) seconds = seconds_since(start);
  });
  return seconds;
}

struct DiskTimes {
  double write = std::numeric_limits<double>::infinity(), read = write, save = write, load = write;
};

DiskTimes measure_disk(const fs::path& dir, State& state, int ranks, int repeats) {
  DiskTimes best;
  const auto keep = [](double& least, double seconds) { least = std::min(least, seconds); };
  for (int n = 0; n < repeats; ++n) {
    const fs::path file = dir / "plain";
    keep(best.write, plain_write(file, state));
    keep(best.read, plain_read(file));
    fs::remove(file);
    fs::path folder;
    keep(best.save, time_ranks(ranks, [&](Communicator& world, int rank) {
           SaveRequest save;
           save.dir = dir;
           save.step = n;
           const std::vector<StatePiece> pieces = state.pieces(rank);
           save.pieces = pieces;
           const SaveResult result = save_checkpoint(world, save);
           if (rank == 0) folder = result.folder;
         }));
    for (const auto& entry : fs::directory_iterator(folder)) forget(entry.path());
    keep(best.load, time_ranks(ranks, [&](Communicator& world, int rank) {
           load_checkpoint(world, folder, state.pieces(rank));
         }));
    fs::remove_all(folder);
  }
  return best;
}

/// What one save in the background cost.
struct AsyncCost {
  double lost = 0, writer_cpu = 0, copy = 0, plain_steps = 0;
  double allowed() const { return 1.2 * writer_cpu + copy; }
};

RunConfig model_to_train() {
  RunConfig config = gpt2_124m_job();
  config.model.vocab_size = 8192;
  config.model.hidden_size = 512;
  config.model.num_hidden_layers = 6;
  config.model.num_attention_heads = config.model.num_key_value_heads = 8;
  config.model.intermediate_size = 2048;
  config.model.max_position_embeddings = 128;
  config.training.sequence_length = 128;
  return config;
}

/// A model that trains, for measuring what disturbs it.
class Training {
 public:
  Training(const RunConfig& config, Communicator& world, int threads)
      : world_(world),
        device_(make_cpu_device(threads)),
        mesh_(grid_of(config), world, mesh_needs(config)),
        trainer_(config, mesh_, *device_, cpu_kernels(), plan_rank(config, 0).scratch_bytes) {
    trainer_.initialise();
    std::vector<int32_t> rows(
        static_cast<size_t>(trainer_.rows_per_step() * (config.training.sequence_length + 1)));
    const RandomStream stream(1, "bench tokens");
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] = static_cast<int32_t>(stream.below(static_cast<uint64_t>(config.model.vocab_size), i));
    trainer_.load_batch(rows.data());
    for (int s = 0; s < 2; ++s) trainer_.step(++step_, {});
    snapshot_to_save(trainer_);  // touches its memory for the first time
  }

  /// Steps with a save among steps without one, so that a machine that gets slower or faster counts for both.
  AsyncCost measure(const fs::path& dir, int steps) {
    AsyncCost cost;
    const double before = time_steps(steps, [] {});
    const auto start = Clock::now();
    const std::vector<StatePiece> pieces = snapshot_to_save(trainer_);
    cost.copy = seconds_since(start);
    SaveRequest request;
    request.dir = dir;
    request.step = step_;
    request.pieces = pieces;
    request.keep = 1;
    BackgroundSave save(world_, request);
    bool done = false;
    time_steps(steps, [&] {
      if (!done && save.ready()) done = save.advance().has_value();
    });
    if (!done) save.finish();
    const double with = seconds_since(start);
    cost.writer_cpu = save.cpu_seconds();
    cost.plain_steps = (before + time_steps(steps, [] {})) / 2;
    cost.lost = with - cost.plain_steps;
    return cost;
  }

 private:
  template <class Body>
  double time_steps(int steps, const Body& after_each) {
    const auto start = Clock::now();
    for (int s = 0; s < steps; ++s) {
      trainer_.step(++step_, {});
      after_each();
    }
    return seconds_since(start);
  }

  Communicator& world_;
  std::unique_ptr<Device> device_;
  Mesh mesh_;
  Trainer trainer_;
  int64_t step_ = 0;
};

AsyncCost measure_async(const fs::path& dir, int repeats) {
  std::vector<AsyncCost> costs;
  run_local_ranks(1, {}, [&](Communicator& world, int) {
    const RunConfig config = model_to_train();
    Training training(config, world, compute_threads(config, 1));
    for (int n = 0; n < repeats; ++n) costs.push_back(training.measure(dir, 12));
  });
  std::sort(costs.begin(), costs.end(), [](const AsyncCost& a, const AsyncCost& b) {
    return a.lost / a.allowed() < b.lost / b.allowed();
  });
  return costs[costs.size() / 2];
}

}  // namespace

void bench_checkpoint(std::ostream& out, const CheckpointBenchOptions& options) {
  const WorkFolder folder(options.dir);
  const int ranks = options.ranks ? options.ranks : compute_threads({}, 1);
  State state(options.bytes, ranks);
  const DiskTimes disk = measure_disk(folder.path(), state, ranks, options.repeats);
  const AsyncCost async = measure_async(folder.path() / "training", options.repeats);
  const auto rate = [&](double seconds) { return static_cast<double>(state.bytes()) / seconds / (1 << 30); };
  if (options.json) {
    out << nlohmann::json{{"bytes", state.bytes()},
                          {"ranks", ranks},
                          {"gib_per_second",
                           {{"plain_write", rate(disk.write)},
                            {"save", rate(disk.save)},
                            {"plain_read", rate(disk.read)},
                            {"load", rate(disk.load)}}},
                          {"save_share", disk.write / disk.save},
                          {"load_share", disk.read / disk.load},
                          {"async",
                           {{"lost_seconds", async.lost},
                            {"writer_cpu_seconds", async.writer_cpu},
                            {"copy_seconds", async.copy},
                            {"share_of_allowed", async.lost / async.allowed()}}}}
               .dump(2)
        << "\n";
    return;
  }
  fmt::print(out, "{} in {}, {} ranks, best of {}\n", human_bytes(static_cast<double>(state.bytes())),
             folder.path().parent_path().string(), ranks, options.repeats);
  fmt::print(out, "write(2), fsync  {:8.2f} GiB/s\n", rate(disk.write));
  fmt::print(out, "save             {:8.2f} GiB/s  {:.0f} % of it\n", rate(disk.save),
             100 * disk.write / disk.save);
  fmt::print(out, "read(2), cold    {:8.2f} GiB/s\n", rate(disk.read));
  fmt::print(out, "load, cold       {:8.2f} GiB/s  {:.0f} % of it, every byte checked\n", rate(disk.load),
             100 * disk.read / disk.load);
  fmt::print(out,
             "\na save in the background, median of {}\n"
             "training lost    {:8.3f} s  in {:.2f} s of steps\n"
             "writer's CPU     {:8.3f} s\ncopy of state    {:8.3f} s\n"
             "lost / (1.2 CPU + copy)  {:.2f}\n",
             options.repeats, async.lost, async.plain_steps, async.writer_cpu, async.copy,
             async.lost / async.allowed());
}

}  // namespace triax
