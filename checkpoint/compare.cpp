#include "checkpoint/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

#include "checkpoint/tensor_reader.h"
#include "checkpoint/text.h"

namespace triax {
namespace {

using nlohmann::json;

// What is not finite is null in JSON.
json number(double x) {
  return std::isfinite(x) ? json(x) : json();
}

struct Difference {
  std::string path;
  std::string problem;  // in one of them only, or of another shape
  int64_t elements = 0, different = 0;
  double largest = 0, relative = 0;
  bool equal() const { return problem.empty() && different == 0; }
};

Difference compare(TensorReader& a, TensorReader& b, const TensorRecord& in_a, const TensorRecord& in_b) {
  Difference d{in_a.path(), "", in_a.shape.numel()};
  if (!(in_a.shape == in_b.shape)) {
    d.problem = fmt::format("{} against {}", to_string(in_a.shape), to_string(in_b.shape));
    return d;
  }
  if (in_a.hash == in_b.hash) return d;
  double squares = 0, difference_squares = 0;
  uint64_t hash_b = 0;
  std::vector<float> other;
  a.each(in_a, [&](int64_t begin, int64_t end, const float* x) {
    other.resize(static_cast<size_t>(end - begin));
    b.read(in_b, begin, end, other.data());
    hash_b += TensorReader::hash_of(in_b, begin, end, other.data());
    for (int64_t i = 0; i < end - begin; ++i) {
      const float y = other[static_cast<size_t>(i)];
      squares += static_cast<double>(x[i]) * x[i];
      if (std::bit_cast<uint32_t>(x[i]) == std::bit_cast<uint32_t>(y)) continue;
      ++d.different;
      const double gap = std::abs(static_cast<double>(x[i]) - y);
      difference_squares += gap * gap;
      if (!(gap <= d.largest)) d.largest = gap;  // NaN stays
    }
  });
  b.check_hash(in_b, hash_b);
  d.relative = squares > 0              ? std::sqrt(difference_squares / squares)
               : difference_squares > 0 ? std::numeric_limits<double>::infinity()
                                        : 0.0;
  return d;
}

std::vector<Difference> compare(TensorReader& a, TensorReader& b) {
  std::vector<Difference> list;
  for (const TensorRecord& t : a.info().tensors) {
    const TensorRecord* other = b.find(t.path());
    list.push_back(other ? compare(a, b, t, *other)
                         : Difference{t.path(), fmt::format("only in {}", a.info().folder.string())});
  }
  for (const TensorRecord& t : b.info().tensors)
    if (!a.find(t.path())) list.push_back({t.path(), fmt::format("only in {}", b.info().folder.string())});
  return list;
}

json to_json(const Difference& d) {
  json j{{"path", d.path}, {"equal", d.equal()}};
  if (!d.problem.empty()) {
    j["problem"] = d.problem;
    return j;
  }
  j["elements"] = d.elements;
  j["different"] = d.different;
  j["largest"] = number(d.largest);
  j["relative"] = number(d.relative);
  return j;
}

struct Statistics {
  int64_t zeros = 0, not_finite = 0;
  double smallest = 0, largest = 0, mean = 0, deviation = 0, norm = 0;
};

Statistics statistics(TensorReader& reader, const TensorRecord& tensor) {
  Statistics s;
  double sum = 0, squares = 0;
  int64_t finite = 0;
  reader.each(tensor, [&](int64_t begin, int64_t end, const float* x) {
    for (int64_t i = 0; i < end - begin; ++i) {
      if (!std::isfinite(x[i])) {
        ++s.not_finite;
        continue;
      }
      s.zeros += x[i] == 0;
      s.smallest = finite ? std::min<double>(s.smallest, x[i]) : x[i];
      s.largest = finite ? std::max<double>(s.largest, x[i]) : x[i];
      ++finite;
      sum += x[i];
      squares += static_cast<double>(x[i]) * x[i];
    }
  });
  s.norm = std::sqrt(squares);
  if (finite == 0) return s;
  s.mean = sum / static_cast<double>(finite);
  s.deviation = std::sqrt(std::max(0.0, squares / static_cast<double>(finite) - s.mean * s.mean));
  return s;
}

}  // namespace

int run_checkpoint_diff(const std::filesystem::path& path_a, const std::filesystem::path& path_b,
                        bool as_json, std::ostream& out) {
  TensorReader a(newest_at(path_a)), b(newest_at(path_b));
  const std::vector<Difference> list = compare(a, b);
  const bool equal = std::all_of(list.begin(), list.end(), [](const Difference& d) { return d.equal(); });
  if (as_json) {
    json j{{"a", {{"folder", a.info().folder.string()}, {"step", a.info().step}}},
           {"b", {{"folder", b.info().folder.string()}, {"step", b.info().step}}},
           {"equal", equal},
           {"tensors", json::array()}};
    for (const Difference& d : list) j["tensors"].push_back(to_json(d));
    out << j.dump(2) << "\n";
    return equal ? 0 : 1;
  }
  out << fmt::format("A {}: step {}\nB {}: step {}\n\n", a.info().folder.string(), a.info().step,
                     b.info().folder.string(), b.info().step);
  size_t width = 0;
  for (const Difference& d : list) width = std::max(width, d.path.size());
  out << fmt::format("{:<{}} {:>16} {:>14} {:>14}\n", "tensor", width, "different", "largest", "relative");
  for (const Difference& d : list)
    if (!d.problem.empty())
      out << fmt::format("{:<{}} {}\n", d.path, width, d.problem);
    else if (d.equal())
      out << fmt::format("{:<{}} {:>16}\n", d.path, width, "equal");
    else
      out << fmt::format("{:<{}} {:>16} {:>14.6g} {:>14.6g}\n", d.path, width,
                         fmt::format("{}/{}", d.different, d.elements), d.largest, d.relative);
  out << (equal ? "\nall tensors are equal to the bit\n" : "");
  return equal ? 0 : 1;
}

int run_checkpoint_statistics(const std::filesystem::path& path, const std::string& name, bool as_json,
                              std::ostream& out) {
  TensorReader reader(newest_at(path));
  json list = json::array();
  for (const TensorRecord& t : reader.info().tensors) {
    if (t.path() != name && t.name != name) continue;
    const Statistics s = statistics(reader, t);
    if (as_json) {
      list.push_back({{"path", t.path()},
                      {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())},
                      {"hash", fmt::format("{:016x}", t.hash)},
                      {"smallest", s.smallest},
                      {"largest", s.largest},
                      {"mean", s.mean},
                      {"deviation", s.deviation},
                      {"norm", s.norm},
                      {"zeros", s.zeros},
                      {"not_finite", s.not_finite}});
      continue;
    }
    list.push_back(t.path());
    out << fmt::format(
        "{}\n  shape       {} ({} elements)\n  hash        {:016x}, checked\n  smallest    {:.9g}\n"
        "  largest     {:.9g}\n  mean        {:.9g}\n  deviation   {:.9g}\n  norm        {:.9g}\n"
        "  zeros       {}\n  not finite  {}\n",
        t.path(), to_string(t.shape), t.shape.numel(), t.hash, s.smallest, s.largest, s.mean, s.deviation,
        s.norm, s.zeros, s.not_finite);
  }
  if (list.empty())
    fail_usage("{} has no tensor {}; `triax checkpoint inspect` lists those it has",
               reader.info().folder.string(), name);
  if (as_json) out << list.dump(2) << "\n";
  return 0;
}

}  // namespace triax
