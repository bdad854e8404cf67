// What the simulator says of a schedule happens: stages of modules that sleep, with real messages between
// them, idle as long as the simulated ones.

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <thread>

#include "comm/local_ranks.h"
#include "engine/stage.h"
#include "pipeline/schedule.h"
#include "pipeline/simulate.h"
#include "support/sanitizer.h"

namespace triax {
namespace {

// What the machinery itself takes must stay small beside the sleeps, also where it is instrumented.
constexpr double scale = test::thread_sanitizer ? 4 : 1;

using Milliseconds = std::chrono::duration<double, std::milli>;

// Takes its times, and computes nothing.
class Sleeper final : public Module {
 public:
  explicit Sleeper(const ActionTimes& times) : times_(times) {}
  const std::string& name() const override { return name_; }
  void declare(ParamStore&) override {}
  void plan(Placement&, const ActivationShape&) override {}
  void forward(Pass&, const Tensor&, const Tensor&) override { sleep(times_.forward); }
  void backward_input(Pass& pass, const Tensor&, const Tensor&, const Tensor&) override {
    sleep(times_.backward_input + (pass.weights_now ? times_.backward_weight : 0));
  }
  void backward_weight(Pass&, const Tensor&) override { sleep(times_.backward_weight); }

 private:
  static void sleep(double milliseconds) { std::this_thread::sleep_for(Milliseconds(scale * milliseconds)); }

  std::string name_ = "sleeper";
  ActionTimes times_;
};

// Runs the schedule on one thread per stage; returns what was done when.
Timeline run(const ScheduleShape& shape, const std::vector<ActionTimes>& parts) {
  const Schedule schedule = make_schedule(shape), evaluation = make_evaluation(shape);
  Timeline timeline;
  timeline.shape = shape;
  timeline.stages.resize(static_cast<size_t>(shape.stages));
  const Trace::Clock::time_point origin = Trace::Clock::now();
  std::mutex mutex;
  run_local_ranks(shape.stages, {}, [&](Communicator& world, int stage) {
    const auto device = make_cpu_device(1);
    Mesh mesh(Grid({{"tp", 1}, {"dp", 1}, {"pp", shape.stages}}), world, {});
    ParamStore params(mesh.grid(), stage, *device);
    Scratch scratch(*device);
    scratch.commit(1 << 16);
    Context context{*device, cpu_kernels(), mesh, params, scratch};
    std::vector<Chunk> chunks;
    const int last = shape.stages * shape.virtual_stages - 1;
    for (int part = stage; part <= last; part += shape.stages) {
      std::vector<std::unique_ptr<Module>> modules;
      modules.push_back(std::make_unique<Sleeper>(parts.at(static_cast<size_t>(part))));
      chunks.emplace_back(std::move(modules), part == 0, part == last);
      chunks.back().declare(params);
    }
    ActivationShape activation;
    activation.batch = 1, activation.sequence = 4, activation.hidden = 8;
    Stage it(context, std::move(chunks), activation, schedule, evaluation);
    it.commit();
    std::vector<int32_t> ids(static_cast<size_t>(shape.micro_batches) * 4);
    MicroBatches batch;
    batch.ids = batch.targets = Tensor::of(ids.data(), {shape.micro_batches, 4});
    Trace trace;
    world.barrier();
    trace.start(origin);
    it.set_trace(&trace);
    Stage::Run pass;
    pass.micro_batches = &batch;
    it.run(pass);
    const std::lock_guard lock(mutex);
    timeline.stages[static_cast<size_t>(stage)] = work_of(trace);
  });
  measure(timeline);
  return timeline;
}

// Other processes of the machine take their time too: the best of a few runs counts.
void expect_bubble(const ScheduleShape& shape, const std::vector<ActionTimes>& parts) {
  const double simulated = simulate(make_schedule(shape), parts).bubble;
  double best = INFINITY;
  for (int attempt = 0; attempt < 12 && std::abs(best - simulated) > 0.03 * simulated; ++attempt) {
    const double bubble = run(shape, parts).bubble;
    if (std::abs(bubble - simulated) < std::abs(best - simulated)) best = bubble;
  }
  EXPECT_NEAR(best / simulated, 1, 0.03) << shape.name << ": simulated " << simulated << ", real " << best;
  ::testing::Test::RecordProperty(shape.name + "_simulated", std::to_string(simulated));
  ::testing::Test::RecordProperty(shape.name + "_real", std::to_string(best));
}

std::vector<ActionTimes> even(const ScheduleShape& shape, const ActionTimes& of_stage) {
  ActionTimes times = of_stage;
  for (double* t : {&times.forward, &times.backward_input, &times.backward_weight})
    *t /= shape.virtual_stages;
  return std::vector<ActionTimes>(static_cast<size_t>(shape.stages * shape.virtual_stages), times);
}

TEST(SerialBubble, OfRealRunsIsTheSimulatedOne) {
  const ActionTimes times{16, 16, 8, 0};
  for (const ScheduleShape& shape : {ScheduleShape{"gpipe", 4, 1, 8}, ScheduleShape{"1f1b", 4, 1, 8},
                                     ScheduleShape{"interleaved", 4, 2, 8}, ScheduleShape{"zb-h1", 4, 1, 8}})
    expect_bubble(shape, even(shape, times));
}

TEST(SerialBubble, OfUnevenStages) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    expect_bubble({schedule, 3, 1, 5}, {{10, 10, 5, 0}, {20, 20, 10, 0}, {30, 6, 6, 0}});
}

}  // namespace
}  // namespace triax
