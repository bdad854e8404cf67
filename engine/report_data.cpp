#include "engine/report_data.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace triax {

namespace {

using Json = nlohmann::json;

// A step's object, or something that is not one.
Json parse_line(const std::string& line) {
  Json object = Json::parse(line, nullptr, false);
  const bool is_step = object.is_object() && object.contains("step") && object["step"].is_number_integer();
  return is_step ? object : Json();
}

void add_point(Curve& curve, int64_t step, const Json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number()) return;
  if (const double number = value->get<double>(); std::isfinite(number)) curve.emplace_back(step, number);
}

double number_of(const Json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number() ? value->get<double>() : 0;
}

// The picture must not fail for want of the job's name.
void read_job(const std::string& path, RunReport& run) {
  if (!std::filesystem::exists(path)) return;
  try {
    const YAML::Node job = YAML::LoadFile(path);
    run.name = job["name"].as<std::string>(run.name);
    run.total_steps = job["training"]["steps"].as<int64_t>(0);
  } catch (const YAML::Exception&) {
    run.total_steps = 0;
  }
}

}  // namespace

RunReport read_run(const std::string& run_dir) {
  const std::string path = run_dir + "/metrics.jsonl";
  if (!std::filesystem::is_directory(run_dir))
    fail_usage("{} is not a folder; give the output_dir of a run, e.g. triax report runs/demo", run_dir);
  std::ifstream file(path);
  if (!file)
    fail_usage("{} can't be read; give the output_dir of a run that `triax train` has started", path);

  RunReport run;
  // A step that stands twice was repeated after a crash: the later line is what the run went on from.
  std::map<int64_t, Json> steps;
  std::string line;
  while (std::getline(file, line)) {
    const bool cut_off = file.eof();  // no end of line yet: still being written
    if (line.empty()) continue;
    Json object = parse_line(line);
    if (!object.is_null()) {
      const int64_t step = object["step"].get<int64_t>();
      steps[step] = std::move(object);
    } else if (!cut_off) {
      ++run.skipped_lines;
    }
  }
  if (steps.empty()) fail_usage("{} holds no step yet; let the run take a step, then ask again", path);

  const std::filesystem::path folder = std::filesystem::absolute(run_dir).lexically_normal();
  run.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  read_job(run_dir + "/job.yaml", run);
  for (const auto& [step, object] : steps) {
    add_point(run.loss, step, object, "loss");
    add_point(run.validation_loss, step, object, "validation_loss");
    add_point(run.grad_norm, step, object, "grad_norm");
    add_point(run.learning_rate, step, object, "lr");
    add_point(run.tokens_per_second, step, object, "tokens_per_second");
    add_point(run.tflops, step, object, "tflops");
    add_point(run.exposed_seconds, step, object, "exposed_seconds");
    add_point(run.hidden_seconds, step, object, "hidden_seconds");
    for (const auto& [key, value] : object.items()) add_point(run.numbers[key], step, object, key.c_str());
    if (const auto skipped = object.find("skipped"); skipped != object.end() && *skipped == true)
      ++run.skipped_steps;
    run.last_step = step;
    run.tokens = static_cast<int64_t>(number_of(object, "tokens"));
    run.seconds += number_of(object, "step_seconds");
    run.peak_bytes = std::max(run.peak_bytes, static_cast<int64_t>(number_of(object, "peak_bytes")));
  }
  for (auto curve = run.numbers.begin(); curve != run.numbers.end();)
    curve = curve->second.empty() ? run.numbers.erase(curve) : std::next(curve);
  return run;
}

Curve thinned(const Curve& curve, size_t points) {
  if (curve.size() <= points) return curve;
  Curve kept;
  const size_t stretches = points / 2;
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = curve.begin() + static_cast<std::ptrdiff_t>(i * curve.size() / stretches);
    const auto end = curve.begin() + static_cast<std::ptrdiff_t>((i + 1) * curve.size() / stretches);
    auto [low, high] =
        std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

std::vector<double> axis_ticks(double low, double high, int count) {
  const double span = std::max(high - low, 1e-12);
  const double power = std::pow(10.0, std::floor(std::log10(span / count)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (span / (factor * power) <= count + 0.5) step = factor * power;
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9));
  const auto last = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (int64_t i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::string tick_label(double value, double step) {
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 12);
  return fmt::format("{:.{}f}", value, decimals);
}

bool environment_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale = value;
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    return locale.find("UTF-8") != std::string::npos || locale.find("UTF8") != std::string::npos;
  }
  return false;
}

}  // namespace triax
