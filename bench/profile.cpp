#include "bench/profile.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace triax {

namespace {

template <class Op>
std::string name_of_call(const Op&, const KernelWork& work) {
  return std::string(work.kernel);
}
std::string name_of_call(const Gemm& op, const KernelWork& work) {
  return fmt::format("{} {}{} {} x {} x {}{}", work.kernel, op.transpose_a ? 'T' : 'N',
                     op.transpose_b ? 'T' : 'N', op.m, op.n, op.k, op.beta != 0 ? " +" : "");
}

// Read and written.
KernelWork copy_work(size_t bytes) {
  return {"copy", 0, 2 * static_cast<double>(bytes)};
}

template <auto entry, class Op>
void timed(Device& device, const Op& op) {
  auto& own = static_cast<TimedDevice&>(device);
  const auto start = TimedDevice::Clock::now();
  (cpu_kernels().*entry)(own.inner(), op);
  const KernelWork work = work_of(op);
  own.add(name_of_call(op, work), work, start);
}

}  // namespace

void TimedDevice::copy(void* destination, const void* source, size_t bytes) {
  const auto start = Clock::now();
  inner_->copy(destination, source, bytes);
  add("copy", copy_work(bytes), start);
}

void TimedDevice::write(void* destination, const void* host_source, size_t bytes) {
  const auto start = Clock::now();
  inner_->write(destination, host_source, bytes);
  add("write", copy_work(bytes), start);
}

void TimedDevice::read(void* host_destination, const void* source, size_t bytes) {
  const auto start = Clock::now();
  inner_->read(host_destination, source, bytes);
  add("read", copy_work(bytes), start);
}

void TimedDevice::copy_rows(void* destination, size_t destination_stride, const void* source,
                            size_t source_stride, size_t bytes, int64_t rows) {
  const auto start = Clock::now();
  inner_->copy_rows(destination, destination_stride, source, source_stride, bytes, rows);
  add("copy_rows", copy_work(bytes * static_cast<size_t>(rows)), start);
}

void TimedDevice::fill_zero(void* destination, size_t bytes) {
  const auto start = Clock::now();
  inner_->fill_zero(destination, bytes);
  add("fill_zero", {"fill_zero", 0, static_cast<double>(bytes)}, start);
}

void TimedDevice::add(const std::string& name, const KernelWork& work, Clock::time_point start) {
  Line& line = lines_[name];
  ++line.calls;
  line.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  line.flops += work.flops;
  line.bytes += work.bytes;
}

const Kernels& timed_kernels() {
  static const Kernels table{
      .name = "cpu, timed",
      .gemm = timed<&Kernels::gemm>,
      .residual_add = timed<&Kernels::residual_add>,
      .norm_forward = timed<&Kernels::norm_forward>,
      .norm_backward_input = timed<&Kernels::norm_backward_input>,
      .norm_backward_weight = timed<&Kernels::norm_backward_weight>,
      .attention_forward = timed<&Kernels::attention_forward>,
      .attention_backward = timed<&Kernels::attention_backward>,
      .attention_cached = timed<&Kernels::attention_cached>,
      .rope = timed<&Kernels::rope>,
      .embedding_forward = timed<&Kernels::embedding_forward>,
      .embedding_backward = timed<&Kernels::embedding_backward>,
      .position_forward = timed<&Kernels::position_forward>,
      .position_backward = timed<&Kernels::position_backward>,
      .dropout = timed<&Kernels::dropout>,
      .bias_gelu_forward = timed<&Kernels::bias_gelu_forward>,
      .bias_gelu_backward = timed<&Kernels::bias_gelu_backward>,
      .swiglu_forward = timed<&Kernels::swiglu_forward>,
      .swiglu_backward = timed<&Kernels::swiglu_backward>,
      .cross_entropy_max = timed<&Kernels::cross_entropy_max>,
      .cross_entropy_sum = timed<&Kernels::cross_entropy_sum>,
      .cross_entropy_backward = timed<&Kernels::cross_entropy_backward>,
      .cross_entropy_loss = timed<&Kernels::cross_entropy_loss>,
      .bias_backward = timed<&Kernels::bias_backward>,
      .adamw = timed<&Kernels::adamw>,
      .squared_norm = timed<&Kernels::squared_norm>,
      .normalise_sums = timed<&Kernels::normalise_sums>,
      .decide_update = timed<&Kernels::decide_update>,
      .add = timed<&Kernels::add>,
      .cast = timed<&Kernels::cast>,
      .find_non_finite = timed<&Kernels::find_non_finite>,
      .product_depth = cpu_kernels().product_depth,
  };
  return table;
}

void print_profile(std::ostream& out, const std::map<std::string, TimedDevice::Line>& lines, int steps,
                   double seconds, const Roofs& roofs) {
  std::vector<std::pair<std::string, TimedDevice::Line>> sorted(lines.begin(), lines.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const auto row = [&](const std::string& name, const std::string& calls, double time,
                       const std::string& roof) {
    fmt::print(out, "  {:<32} {:>7} {:>10.3f} {:>7.2f} % {:>8}\n", name, calls, 1e3 * time / steps,
               100 * time / seconds, roof);
  };
  fmt::print(out, "  {:<32} {:>7} {:>10} {:>9} {:>8}\n", "kernel", "calls", "ms", "of step", "of roof");
  double rest = seconds;
  for (const auto& [name, line] : sorted) {
    rest -= line.seconds;
    const double at_roof = std::max(line.flops / roofs.flops, line.bytes / roofs.bytes);
    row(name, fmt::format("{}", line.calls / steps), line.seconds,
        fmt::format("{:.0f} %", 100 * at_roof / line.seconds));
  }
  row("outside kernels", "", rest, "");
}

}  // namespace triax
