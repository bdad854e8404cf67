#include "bench/tensor_parallel.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/ranks.h"
#include "bench/stopwatch.h"
#include "kernels/kernels.h"

namespace triax {

double TensorParallelPoint::flop_rate() const {
  return 16.0 * static_cast<double>(tokens * hidden * hidden) / tensor / compute;
}
double TensorParallelPoint::bandwidth() const {
  return 2.0 * (tensor - 1) / tensor * static_cast<double>(message_bytes()) / communication;
}
double predicted_ratio(int tensor, int64_t hidden, double beta, double flop_rate, double bandwidth) {
  return beta * (tensor - 1) / (8.0 * static_cast<double>(hidden)) * flop_rate / bandwidth;
}

namespace {

TensorParallelPoint measure(Communicator& group, Device& device, int64_t h, int64_t tokens, double budget) {
  const int t = group.size();
  const int64_t inner = 4 * h / t;
  DeviceBlock x(device, tokens * h), up(device, inner * h), middle(device, tokens * inner),
      down(device, h * inner), y(device, tokens * h);
  const Kernels& kernels = cpu_kernels();
  // y = (x up^T) down^T with this rank's rows of up and columns of down.
  const Gemm column{.transpose_b = true,
                    .m = tokens,
                    .n = inner,
                    .k = h,
                    .a = x.data(),
                    .lda = h,
                    .b = up.data(),
                    .ldb = h,
                    .c = middle.data(),
                    .ldc = inner};
  const Gemm row{.transpose_b = true,
                 .m = tokens,
                 .n = h,
                 .k = inner,
                 .a = middle.data(),
                 .lda = inner,
                 .b = down.data(),
                 .ldb = inner,
                 .c = y.data(),
                 .ldc = h};
  TensorParallelPoint point{t, h, tokens, 0, 0};
  point.compute = best_seconds_together(group, budget, [&] {
    kernels.gemm(device, column);
    kernels.gemm(device, row);
  });
  const Tensor output = Tensor::of(y.data(), Shape{tokens, h});
  point.communication =
      best_seconds_together(group, budget, [&] { group.all_reduce(output, output, ReduceOp::max).wait(); });
  return point;
}

// Highest rates of the points with this tensor degree.
std::pair<double, double> best_rates(const std::vector<TensorParallelPoint>& points, int tensor) {
  double flops = 0, bandwidth = 0;
  for (const TensorParallelPoint& p : points)
    if (p.tensor == tensor) {
      flops = std::max(flops, p.flop_rate());
      bandwidth = std::max(bandwidth, p.bandwidth());
    }
  return {flops, bandwidth};
}

double prediction(const std::vector<TensorParallelPoint>& points, const TensorParallelPoint& p) {
  const auto [flops, bandwidth] = best_rates(points, p.tensor);
  return predicted_ratio(p.tensor, p.hidden, 4, flops, bandwidth);
}

// A line of a logarithmic axis from 0.001 to 10: 'o' measured, '|' predicted, 'X' both.
std::string plotted(double measured, double predicted) {
  constexpr int width = 48;
  const auto column = [](double value) {
    return static_cast<int>(std::lround(std::clamp((std::log10(value) + 3) / 4, 0.0, 1.0) * (width - 1)));
  };
  std::string line(width, ' ');
  for (int decade = 0; decade <= 4; ++decade) line[static_cast<size_t>(decade * (width - 1) / 4)] = '.';
  line[static_cast<size_t>(column(predicted))] = '|';
  char& mark = line[static_cast<size_t>(column(measured))];
  mark = mark == '|' ? 'X' : 'o';
  return line;
}

void print_table(std::ostream& out, const std::vector<TensorParallelPoint>& points) {
  fmt::print(out,
             "MLP forward h -> 4h -> h, fp32; communication / computation, measured (o) and predicted (|)\n"
             "as 4(t-1)/(8h) * FLOP rate / bandwidth\n\n"
             "{:>3} {:>6} {:>7} {:>10} {:>11} {:>11} {:>9} {:>9}  {}\n",
             "t", "h", "tokens", "MiB", "compute ms", "reduce ms", "measured", "predicted",
             "0.001       0.01        0.1         1         10");
  for (const TensorParallelPoint& p : points)
    fmt::print(out, "{:>3} {:>6} {:>7} {:>10.2f} {:>11.3f} {:>11.3f} {:>9.4f} {:>9.4f}  {}\n", p.tensor,
               p.hidden, p.tokens, static_cast<double>(p.message_bytes()) / (1 << 20), p.compute * 1e3,
               p.communication * 1e3, p.ratio(), prediction(points, p),
               plotted(p.ratio(), prediction(points, p)));
  int last = 0;
  for (const TensorParallelPoint& p : points) {
    if (p.tensor == last) continue;
    last = p.tensor;
    const auto [flops, bandwidth] = best_rates(points, p.tensor);
    fmt::print(out, "tensor {}: at best {:.1f} GFLOP/s and {:.2f} GB/s a rank\n", p.tensor, flops / 1e9,
               bandwidth / 1e9);
  }
}

nlohmann::json to_json(const std::vector<TensorParallelPoint>& points) {
  nlohmann::json list = nlohmann::json::array();
  for (const TensorParallelPoint& p : points)
    list.push_back({{"tensor", p.tensor},
                    {"hidden", p.hidden},
                    {"tokens", p.tokens},
                    {"message_bytes", p.message_bytes()},
                    {"compute_seconds", p.compute},
                    {"communication_seconds", p.communication},
                    {"measured", p.ratio()},
                    {"predicted", prediction(points, p)}});
  return list;
}

}  // namespace

void bench_tensor_parallel(std::ostream& out, const TensorParallelOptions& options) {
  run_bench_ranks(options.ranks, [&](Communicator& world) {
    if (world.size() < 2)
      fail_usage("tensor parallelism wants at least two ranks: --ranks N, or mpirun -n N");
    std::vector<TensorParallelPoint> points;
    for (int t = 2; t <= world.size(); t = t < world.size() ? std::min(2 * t, world.size()) : t + 1) {
      for (const int64_t h : options.hidden)
        if (4 * h % t != 0) fail_usage("--hidden {}: 4 * {} is not divisible by {} tensor ranks", h, h, t);
      const auto group = world.split(world.rank() < t ? 0 : -1, "bench");
      if (group) {
        const auto device = make_cpu_device(1);
        for (const int64_t h : options.hidden)
          for (const int64_t tokens : options.tokens)
            points.push_back(measure(*group, *device, h, tokens, options.seconds));
      }
      world.barrier();
    }
    if (world.rank() != 0) return;
    if (options.json)
      out << to_json(points).dump(2) << "\n";
    else
      print_table(out, points);
  });
}

}  // namespace triax
