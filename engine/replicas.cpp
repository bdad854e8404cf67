#include "engine/replicas.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/hash.h"
#include "core/bf16.h"
#include "core/on_host.h"
#include "model/gpt.h"

namespace triax {

namespace {

using Json = nlohmann::json;

enum Kind : size_t { weight, exp_avg, exp_avg_sq, master, kinds };
constexpr const char* words[] = {"", "exp_avg of ", "exp_avg_sq of ", "the fp32 master of "};

// Hashes of what a rank holds of one parameter, by kind; they add up over the ranks that share a copy.
using Digest = std::array<uint64_t, kinds>;

// Which tensor of a report: the same on all ranks that hold a copy of it.
struct Compared {
  int64_t order = 0;  // of the parameter in the model
  size_t kind = 0;
  std::string box;  // "[0:48, 0:48]"
  auto operator<=>(const Compared&) const = default;
};

class Comparison {
 public:
  explicit Comparison(const ReplicaState& state) : s_(state), world_(state.mesh.world()) {}

  void run(const std::string& when) {
    digest_all();
    int64_t differ = agree() ? 0 : 1;
    world_.all_reduce(Tensor::of(&differ, {1}), Tensor::of(&differ, {1}), ReduceOp::max).wait();
    if (differ) explain(when);
  }

 private:
  const std::vector<ParamStore::Entry>& entries() const { return s_.params.entries(); }
  static bool owns(const ParamStore::Entry& entry) { return entry.primary < 0; }
  size_t used_kinds() const { return s_.optimizer.has_masters() ? kinds : master; }

  uint64_t hash(size_t entry, size_t kind, int64_t begin, int64_t end) const;
  uint64_t hash_weight(const ParamStore::Entry& entry, int64_t begin, int64_t end) const;
  uint64_t hash_floats(uint64_t key, const ParamStore::Entry& entry, int64_t begin,
                       const Tensor& elements) const;
  uint32_t bits_of(const float* element) const {
    uint32_t bits;
    s_.device.read(&bits, element, sizeof bits);
    return bits;
  }
  void digest_all() {
    digests_.resize(entries().size());
    if (!s_.computes) return;
    for (size_t i = 0; i < entries().size(); ++i)
      for (size_t kind = 0; owns(entries()[i]) && kind < used_kinds(); ++kind)
        digests_[i][kind] = hash(i, kind, 0, entries()[i].box.numel());
  }
  float* state_at(size_t kind, int64_t flat) const {
    if (kind == master) return s_.optimizer.master_at(flat);
    return kind == exp_avg ? s_.optimizer.exp_avg_at(flat) : s_.optimizer.exp_avg_sq_at(flat);
  }

  bool equal(Communicator* group, const std::vector<uint64_t>& values) const;
  bool agree() const;
  bool agree_on_tied() const;
  int copy_of(size_t kind) const;
  void explain(const std::string& when) const;
  std::string tell(const std::vector<Json>& ranks, Json& first) const;
  std::string first_difference(const Json& first) const;
  std::array<uint64_t, 2> over_both(const Json& first,
                                    const std::function<uint64_t(size_t entry)>& mine) const;

  const ReplicaState& s_;
  Communicator& world_;
  std::vector<Digest> digests_;  // by entry
};

// Row-major positions [begin, end) of the entry's box, as fp32 whatever the weights are.
uint64_t Comparison::hash_weight(const ParamStore::Entry& entry, int64_t begin, int64_t end) const {
  const uint64_t key = logical_key(logical_path(StateKind::weight, entry.spec.name));
  const Tensor weights = s_.params.weights();
  if (weights.dtype() == DType::f32)
    return hash_floats(key, entry, begin, weights.rows(entry.offset + begin, end - begin));
  uint64_t sum = 0;
  std::array<float, 4096> part;
  visit_on_host<bf16>(s_.device, weights.rows(entry.offset + begin, end - begin),
                      [&](const bf16* from, int64_t first, int64_t count) {
                        for (int64_t i = 0; i < count;) {
                          const int64_t n = std::min<int64_t>(count - i, part.size()), at = begin + first + i;
                          std::transform(from + i, from + i + n, part.begin(),
                                         [](bf16 x) { return value_of(x); });
                          sum += hash_range(key, entry.spec.global, entry.box, at, at + n, part.data());
                          i += n;
                        }
                      });
  return sum;
}

// Fp32 elements of the device, of which the first stands at row-major position `begin` of the entry's box.
uint64_t Comparison::hash_floats(uint64_t key, const ParamStore::Entry& entry, int64_t begin,
                                 const Tensor& elements) const {
  uint64_t sum = 0;
  visit_on_host<float>(s_.device, elements, [&](const float* x, int64_t first, int64_t n) {
    sum += hash_range(key, entry.spec.global, entry.box, begin + first, begin + first + n, x);
  });
  return sum;
}

uint64_t Comparison::hash(size_t index, size_t kind, int64_t begin, int64_t end) const {
  const ParamStore::Entry& entry = entries()[index];
  if (kind == weight) return hash_weight(entry, begin, end);
  const StateKind state = kind == exp_avg      ? StateKind::exp_avg
                          : kind == exp_avg_sq ? StateKind::exp_avg_sq
                                               : StateKind::weight;
  const uint64_t key = logical_key(logical_path(state, entry.spec.name));
  uint64_t sum = 0;
  for (const ParamRange& piece : s_.optimizer.updated().pieces()) {
    if (piece.entry != static_cast<int>(index)) continue;
    const int64_t from = std::max(begin, piece.first_in_box),
                  to = std::min(end, piece.first_in_box + piece.end - piece.begin);
    if (from < to)
      sum += hash_floats(key, entry, from,
                         Tensor::of(state_at(kind, piece.begin) + (from - piece.first_in_box), {to - from}));
  }
  return sum;
}

// One message: the largest hash and, of the complements, that of the smallest.
bool Comparison::equal(Communicator* group, const std::vector<uint64_t>& values) const {
  if (!group || group->size() == 1 || values.empty()) return true;
  std::vector<int64_t> extremes;
  for (uint64_t v : values) extremes.push_back(static_cast<int64_t>(v));
  for (uint64_t v : values) extremes.push_back(static_cast<int64_t>(~v));
  const Tensor message = Tensor::of(extremes.data(), {static_cast<int64_t>(extremes.size())});
  const Communicator::HostTensors on_host(*group);
  group->all_reduce(message, message, ReduceOp::max).wait();
  for (size_t i = 0; i < values.size(); ++i)
    if (extremes[i] != ~extremes[i + values.size()]) return false;
  return true;
}

bool Comparison::agree() const {
  std::vector<uint64_t> weights, states, whole, copied;
  for (size_t i = 0; i < entries().size(); ++i) {
    const ParamStore::Entry& entry = entries()[i];
    if (!owns(entry)) continue;
    weights.push_back(digests_[i][weight]);
    const auto first = digests_[i].begin(), end = first + static_cast<std::ptrdiff_t>(used_kinds());
    states.insert(states.end(), first + exp_avg, end);
    if (entry.spec.shards.empty())
      whole.insert(whole.end(), first, end);
    else if (entry.copies > 1)
      copied.insert(copied.end(), first, end);
  }
  // All groups are asked, also after a difference: the others wait.
  bool same = equal(&s_.mesh.dp(), weights);
  same = equal(s_.mesh.zero_replicas(), states) && same;
  same = equal(&s_.mesh.tp(), whole) && same;
  same = equal(&s_.mesh.tp_copies(), copied) && same;
  return agree_on_tied() && same;
}

// The two tables lie elsewhere in the flat buffers, so that their ZeRO slices differ: whole moments are
// compared, the hashes of the slices added up (in halves, which cannot overflow).
bool Comparison::agree_on_tied() const {
  if (!s_.mesh.tied()) return true;
  for (size_t i = 0; i < entries().size(); ++i) {
    const ParamStore::Entry& entry = entries()[i];
    if (!(s_.mesh.first_stage() ? entry.spec.name == "embed.tokens.weight" : entry.spec.tied)) continue;
    std::vector<int64_t> halves;
    for (size_t kind = exp_avg; kind < used_kinds(); ++kind) {
      halves.push_back(static_cast<int64_t>(digests_[i][kind] & 0xffffffff));
      halves.push_back(static_cast<int64_t>(digests_[i][kind] >> 32));
    }
    const Tensor message = Tensor::of(halves.data(), {static_cast<int64_t>(halves.size())});
    if (Communicator* shard = s_.mesh.zero_shard()) {
      const Communicator::HostTensors on_host(*shard);
      shard->all_reduce(message, message, ReduceOp::sum).wait();
    }
    std::vector<uint64_t> values{digests_[i][weight]};
    for (size_t h = 0; h < halves.size(); h += 2)
      values.push_back(static_cast<uint64_t>(halves[h]) + (static_cast<uint64_t>(halves[h + 1]) << 32));
    return equal(s_.mesh.tied(), values);
  }
  return true;
}

// A copy of a weight is a rank's; one of a moment is that of the ranks that share it, and has the first one's
// name.
int Comparison::copy_of(size_t kind) const {
  const Mesh& mesh = s_.mesh;
  if (kind == weight) return mesh.rank();
  const int shards = s_.mesh.zero_shard() ? s_.mesh.zero_shard()->size() : 1, place = mesh.coordinate("dp");
  return mesh.grid().with(mesh.rank(), "dp", place - place % shards);
}

std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

struct Copy {
  uint64_t hash = 0;
  std::vector<size_t> ranks;  // that share it
};

// A tensor whose copies differ.
struct Finding {
  Compared tensor;
  std::map<int, Copy> copies;
  uint64_t right = 0;     // the hash of most copies
  bool majority = false;  // they are more than half

  // What tells most comes first. Damage spreads by way of gradients, from one copy to moments of many ranks:
  // a tensor in which most copies agree names the rank, and a weight is nearer to the cause.
  auto urgency() const { return std::tuple(!majority, tensor.kind != weight, tensor); }
};

// Of all that the ranks have sent.
std::vector<Finding> findings(const std::vector<Json>& ranks) {
  std::map<Compared, std::map<int, Copy>> tensors;
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const Json& one : ranks[r]["tensors"]) {
      Copy& copy = tensors[{one[0], one[1], one[2]}][one[3]];
      copy.hash += one[4].get<uint64_t>();
      copy.ranks.push_back(r);
    }
  std::vector<Finding> found;
  for (auto& [tensor, copies] : tensors) {
    std::map<uint64_t, size_t> votes;
    for (const auto& [id, copy] : copies) ++votes[copy.hash];
    if (votes.size() < 2) continue;
    const auto winner = std::max_element(votes.begin(), votes.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool majority = 2 * winner->second > copies.size();
    found.push_back({tensor, std::move(copies), winner->first, majority});
  }
  std::sort(found.begin(), found.end(),
            [](const Finding& a, const Finding& b) { return a.urgency() < b.urgency(); });
  return found;
}

// What ranks hold which side; `first` gets what all ranks need to find the first element.
std::string tell_sides(const Finding& f, const std::string& name, const std::vector<Json>& ranks,
                       Json& first) {
  std::vector<std::string> odd, right;
  int odd_copy = -1, right_copy = -1;
  for (const auto& [id, copy] : f.copies) {
    const bool is_odd = copy.hash != (f.majority ? f.right : f.copies.begin()->second.hash);
    (is_odd ? odd_copy : right_copy) = is_odd && odd_copy >= 0 ? odd_copy : id;
    for (size_t r : copy.ranks)
      (is_odd ? odd : right)
          .push_back(is_odd || !f.majority ? fmt::format("{} ({})", r, ranks[r]["host"].get<std::string>())
                                           : std::to_string(r));
  }
  first = {f.tensor.order, f.tensor.kind, f.tensor.box, odd_copy, right_copy, f.majority};
  const auto list = [](const std::vector<std::string>& who) {
    return fmt::format("rank{} {}", who.size() > 1 ? "s" : "", fmt::join(who, ", "));
  };
  return fmt::format("\n  {} {}: {} {} {}{}", name, f.tensor.box, list(odd),
                     odd.size() > 1 ? "differ from" : "differs from", list(right),
                     f.majority ? "" : ", and no majority tells which is right");
}

// On rank 0, what differs, the most telling tensor first; the last of `first` are the names of the others.
std::string Comparison::tell(const std::vector<Json>& ranks, Json& first) const {
  const auto specs = logical_parameters(s_.model);
  const std::vector<Finding> found = findings(ranks);
  std::vector<std::string> names;
  for (const Finding& f : found)
    names.push_back(words[f.tensor.kind] + specs[static_cast<size_t>(f.tensor.order)].name);
  // The groups that ask whether all agree are those whose copies are compared here.
  check(!found.empty(), "replicas differ, but all copies of every tensor are equal");
  std::string text = tell_sides(found[0], names[0], ranks, first);
  constexpr size_t shown = 6;
  const size_t more = names.size() - 1, told = std::min(more, shown);
  const auto begin = names.begin() + 1;
  first.push_back(more ? fmt::format("\n  also in {} more: {}{}", more,
                                     fmt::join(begin, begin + static_cast<std::ptrdiff_t>(told), ", "),
                                     more > told ? ", ..." : "")
                       : "");
  return text;
}

// The sums of what the ranks of the two copies have to say, `mine` for the entry that the report is about.
std::array<uint64_t, 2> Comparison::over_both(const Json& first,
                                              const std::function<uint64_t(size_t entry)>& mine) const {
  const auto specs = logical_parameters(s_.model);
  const std::string name = specs[first[0].get<size_t>()].name;
  std::array<int64_t, 4> halves{};
  for (size_t i = 0; i < entries().size(); ++i) {
    const int copy = copy_of(first[1]);
    if (!owns(entries()[i]) || entries()[i].spec.name != name ||
        to_string(entries()[i].box) != first[2].get<std::string>())
      continue;
    for (size_t side = 0; side < 2; ++side) {
      if (copy != first[3 + side].get<int>()) continue;
      const uint64_t value = mine(i);
      halves[2 * side] = static_cast<int64_t>(value & 0xffffffff);
      halves[2 * side + 1] = static_cast<int64_t>(value >> 32);
    }
  }
  const Tensor message = Tensor::of(halves.data(), {4});
  world_.all_reduce(message, message, ReduceOp::sum).wait();
  const auto whole = [](int64_t low, int64_t high) {
    return static_cast<uint64_t>(low) + (static_cast<uint64_t>(high) << 32);
  };
  return {whole(halves[0], halves[1]), whole(halves[2], halves[3])};
}

// Halves the box until one position is left: the hash of a part that is equal rules it out.
std::string Comparison::first_difference(const Json& first) const {
  const size_t kind = first[1];
  int64_t size = 0;  // of the box; ranks without it do not know it
  const auto specs = logical_parameters(s_.model);
  Box box;
  for (const auto& entry : entries())
    if (owns(entry) && entry.spec.name == specs[first[0].get<size_t>()].name &&
        to_string(entry.box) == first[2].get<std::string>())
      size = entry.box.numel(), box = entry.box;
  world_.all_reduce(Tensor::of(&size, {1}), Tensor::of(&size, {1}), ReduceOp::max).wait();
  int64_t begin = 0, end = size;
  while (end - begin > 1) {
    const int64_t middle = begin + (end - begin) / 2;
    const auto sums = over_both(first, [&](size_t entry) { return hash(entry, kind, begin, middle); });
    (sums[0] == sums[1] ? begin : end) = middle;
  }
  const auto bits = over_both(first, [&](size_t i) -> uint64_t {
    const ParamStore::Entry& entry = entries()[i];
    if (kind == weight && s_.params.dtype() == DType::bf16) {
      bf16 element;
      s_.device.read(&element, s_.params.weights().as<bf16>() + entry.offset + begin, sizeof element);
      return std::bit_cast<uint32_t>(value_of(element));
    }
    if (kind == weight) return bits_of(s_.params.weights().f32() + entry.offset + begin);
    for (const ParamRange& piece : s_.optimizer.updated().pieces())
      if (piece.entry == static_cast<int>(i) && begin >= piece.first_in_box &&
          begin < piece.first_in_box + piece.end - piece.begin)
        return bits_of(state_at(kind, piece.begin) + (begin - piece.first_in_box));
    return 0;
  });
  std::string index =
      size && box.extent.rank() ? fmt::format("{}", fmt::join(index_of(box, begin), ", ")) : "";
  // Rank 0 may hold nothing of it: whoever does, tells.
  const auto all = gather_bytes(world_, index, 0);
  for (const std::string& one : all)
    if (!one.empty()) index = one;
  return fmt::format("; first at [{}]: {:.9g} against {:.9g}", index,
                     std::bit_cast<float>(static_cast<uint32_t>(bits[0])),
                     std::bit_cast<float>(static_cast<uint32_t>(bits[1])));
}

void Comparison::explain(const std::string& when) const {
  std::map<std::string, int64_t> order;
  for (const ParamSpec& spec : logical_parameters(s_.model))
    order[spec.name] = static_cast<int64_t>(order.size());
  Json mine{{"host", host_name()}, {"tensors", Json::array()}};
  for (size_t i = 0; i < entries().size(); ++i)
    for (size_t kind = 0; owns(entries()[i]) && kind < used_kinds(); ++kind)
      mine["tensors"].push_back({order.at(entries()[i].spec.name), kind, to_string(entries()[i].box),
                                 copy_of(kind), digests_[i][kind]});
  const auto all = gather_bytes(world_, mine.dump(), 0);
  std::string message;
  if (world_.rank() == 0) {
    std::vector<Json> ranks;
    for (const std::string& one : all) ranks.push_back(Json::parse(one));
    Json first;
    const std::string text = tell(ranks, first);
    message = Json{{"first", first}, {"text", text}}.dump();
  }
  broadcast_bytes(world_, message, 0);
  const Json told = Json::parse(message);
  std::string where = first_difference(told["first"]);
  broadcast_bytes(world_, where, 0);
  throw ReplicaError(ErrorKind::fault,
                     when + told["text"].get<std::string>() + where +
                         told["first"].back().get<std::string>() +
                         "\n  Whatever was saved in between was compared first: the same command goes "
                         "on from the newest checkpoint. When it happens again, leave that host out");
}

}  // namespace

void compare_replicas(const ReplicaState& state, const std::string& when) {
  Comparison(state).run(when);
}

}  // namespace triax
