#include "engine/nonfinite.h"

#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "checkpoint/agree.h"
#include "core/bf16.h"
#include "core/on_host.h"
#include "model/gpt.h"

namespace triax {

namespace {

using Json = nlohmann::json;

// In the order of cause.
enum class Kind { weight, output, loss, input_gradient, gradient, gradient_left, gradient_sum, count };
constexpr auto kinds = static_cast<size_t>(Kind::count);

// Numbers that are not finite in a run of elements.
struct Scan {
  int64_t count = 0, first = 0;
  float value = 0;
};

template <class T>
Scan scan_elements(Device& device, const Tensor& tensor) {
  Scan scan;
  visit_on_host<T>(device, tensor, [&](const T* x, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      float value;
      if constexpr (std::is_same_v<T, bf16>)
        value = value_of(x[i]);
      else
        value = x[i];
      if (std::isfinite(value)) continue;
      if (scan.count++ == 0) scan.first = first + i, scan.value = value;
    }
  });
  return scan;
}

Scan scan(Device& device, const Tensor& x) {
  return x.dtype() == DType::bf16 ? scan_elements<bf16>(device, x) : scan_elements<float>(device, x);
}

// "nan", "inf" or "-inf": the sign of a NaN means nothing.
std::string name_of_value(float x) {
  if (std::isnan(x)) return "nan";
  return x > 0 ? "inf" : "-inf";
}

// One tensor of one rank. Of each kind a rank tells the first one; `order` and `micro_batch` say which that
// is.
struct Spot {
  int64_t order = 0, micro_batch = 0;
  std::string what;  // "the weight layers.0.mlp.up.weight"
  int64_t count = 0, of = 0;
  std::string first, value;
};

class Search {
 public:
  explicit Search(const NonfiniteSearch& search) : s_(search) {
    for (const ParamSpec& spec : logical_parameters(s_.model))
      order_[spec.name] = static_cast<int64_t>(order_.size());
  }

  NonfiniteReport run() {
    look_at_weights();
    if (s_.has_gradients) look_at_what_is_left();
    const Probe probe = [this](const Pass& pass, const Module& module, bool backward, const Tensor& x) {
      look_at_module(pass, module, backward, x);
    };
    s_.replay(probe);
    look_at_gradients();
    return agree();
  }

 private:
  void note(Kind kind, Spot spot) {
    auto& best = spots_[static_cast<size_t>(kind)];
    if (!best || std::pair(spot.order, spot.micro_batch) < std::pair(best->order, best->micro_batch))
      best = std::move(spot);
  }

  // A part of a parameter: `x` begins at position `from` of the entry's box.
  void look(Kind kind, const char* what, const ParamStore::Entry& entry, int64_t from, const Tensor& x) {
    const Scan found = scan(s_.device, x);
    if (found.count > 0) note_elements(kind, what, entry, from + found.first, x.numel(), found);
  }

  // `position`: of the first of them, in the entry's box.
  void note_elements(Kind kind, const char* what, const ParamStore::Entry& entry, int64_t position,
                     int64_t of, const Scan& found) {
    const Shape index = index_of(entry.box, position);
    note(kind, {order_.at(entry.spec.name), 0, fmt::format("{} {}", what, entry.spec.name), found.count, of,
                fmt::format("[{}]", fmt::join(index, ", ")), name_of_value(found.value)});
  }

  void look_at_weights() {
    const Tensor weights = s_.params.weights();
    for (const auto& entry : s_.params.entries())
      if (entry.primary < 0)
        look(Kind::weight, "the weight", entry, 0, weights.rows(entry.offset, entry.box.numel()));
    if (!s_.optimizer.has_masters()) return;
    for (const auto& piece : s_.optimizer.updated().pieces())
      look(Kind::weight, "the fp32 master of", entry_of(piece), piece.first_in_box,
           Tensor::of(s_.optimizer.master_at(piece.begin), {piece.end - piece.begin}));
  }

  // What this rank reduces is the sum; the rest, unless it was gathered, still is what this rank had to add.
  void look_at_what_is_left() {
    std::map<int, int64_t> seen;  // entry -> the position in its box up to which it has been looked at
    const bool gathered = s_.mesh.zero_replicas() != nullptr;
    const auto look_before = [&](int entry, int64_t end) {
      const int64_t begin = std::exchange(seen[entry], end);
      const auto& e = s_.params.entries()[static_cast<size_t>(entry)];
      if (!gathered && begin < end)
        look(Kind::gradient_left, "before the sum over data ranks, the gradient of", e, begin,
             s_.params.grads().rows(e.offset + begin, end - begin));
    };
    for (const auto& piece : s_.optimizer.partition().pieces()) {
      const int64_t n = piece.end - piece.begin;
      look_before(piece.entry, piece.first_in_box);
      look(Kind::gradient_sum, "after the sum over ranks, the gradient of", entry_of(piece),
           piece.first_in_box, s_.params.grads().rows(piece.begin, n));
      seen[piece.entry] = piece.first_in_box + n;
    }
    for (size_t i = 0; i < s_.params.entries().size(); ++i) {
      const auto& entry = s_.params.entries()[i];
      if (entry.primary < 0) look_before(static_cast<int>(i), entry.box.numel());
    }
  }

  // Of a table whose look-ups have a gradient apart primary_grad() is that of its products, which have an
  // entry of their own.
  void look_at_gradients() {
    const auto lookups = s_.params.lookups_apart();
    for (const auto& entry : s_.params.entries()) {
      if (lookups && &entry == lookups->table) {
        look_at_lookups(*lookups);
        continue;
      }
      const Tensor grad = s_.params.primary_grad(entry);
      look(Kind::gradient, "the gradient of", entry, 0,
           grad.reshape({grad.numel()}).rows(0, entry.box.numel()));
    }
  }

  void look_at_lookups(const ParamStore::LookupsApart& lookups) {
    const auto& [table, grad, by_slot, slot_ids] = lookups;
    const Tensor all = grad.reshape({grad.numel()});
    if (!by_slot) return look(Kind::gradient, "the gradient of", *table, 0, all.rows(0, table->box.numel()));
    const Scan found = scan(s_.device, all);
    if (found.count == 0) return;
    const int64_t slot = found.first / grad[1], column = found.first % grad[1];
    int32_t id = 0;
    s_.device.read(&id, slot_ids.rows(slot, 1).raw(), sizeof id);
    const int64_t row = id - table->box.offset[0];
    note_elements(Kind::gradient, "the gradient of", *table, row * grad[1] + column, table->box.numel(),
                  found);
  }

  // embed, layers.0, layers.1, ..., head
  static int64_t order_of(const std::string& module) {
    if (module == "embed") return -1;
    if (module == "head") return std::numeric_limits<int32_t>::max();
    return std::stoll(module.substr(module.find('.') + 1));
  }

  void look_at_module(const Pass& pass, const Module& module, bool backward, const Tensor& x) {
    const int64_t in_batch = pass.first_token / pass.sequence;
    const int64_t micro_batch = (in_batch - s_.first_sequence) / pass.batch, order = order_of(module.name());
    if (!backward && pass.loss && !x) {  // the head, after each micro-batch
      ExactSum loss;
      s_.device.read(&loss, pass.loss, sizeof loss);
      const int64_t bad = loss.digits()[ExactSum::digit_count - 1];
      if (bad != std::exchange(bad_losses_, bad))
        note(Kind::loss,
             {order, micro_batch, fmt::format("the loss of micro-batch {}", micro_batch), 0, 0, "", ""});
    }
    if (!x) return;
    const Scan found = scan(s_.device, x);
    if (found.count == 0) return;
    const int64_t row = pass.first_row() + found.first / x[1], sequence = in_batch + row / pass.sequence;
    const std::string what =
        fmt::format("{} of {} in micro-batch {}", backward ? "the gradient of the input" : "the output",
                    module.name(), micro_batch);
    note(backward ? Kind::input_gradient : Kind::output,
         {backward ? -order : order, micro_batch, what, found.count, x.numel(),
          fmt::format("token {} of sequence {} of the step's batch", row % pass.sequence, sequence),
          name_of_value(found.value)});
  }

  NonfiniteReport agree();
  std::string line(size_t kind, const std::vector<Json>& ranks, bool leads) const;
  const ParamStore::Entry& entry_of(const ParamRange& piece) const {
    return s_.params.entries()[static_cast<size_t>(piece.entry)];
  }

  NonfiniteSearch s_;
  std::map<std::string, int64_t> order_;  // of parameters in the model
  std::optional<Spot> spots_[kinds];
  int64_t bad_losses_ = 0;
};

// What the ranks with the first spot of a kind say about it; empty when no rank has one.
std::string Search::line(size_t kind, const std::vector<Json>& ranks, bool leads) const {
  using Key = std::pair<int64_t, int64_t>;
  const auto key = [&](const Json& spot) { return Key(spot[0], spot[1]); };
  std::vector<size_t> where;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Json& spot = ranks[r][kind];
    if (spot.is_null()) continue;
    if (!where.empty() && key(spot) > key(ranks[where[0]][kind])) continue;
    if (!where.empty() && key(spot) < key(ranks[where[0]][kind])) where.clear();
    where.push_back(r);
  }
  if (where.empty()) return "";
  const Json& spot = ranks[where[0]][kind];
  constexpr size_t shown = 8;
  const size_t more = where.size() > shown ? where.size() - shown : 0;
  std::string text =
      fmt::format("\n  {}: {} on rank{} {}{}", leads ? "first" : "then", spot[2].get<std::string>(),
                  where.size() > 1 ? "s" : "",
                  fmt::join(where.begin(), where.end() - static_cast<std::ptrdiff_t>(more), ", "),
                  more ? fmt::format(" and {} more", more) : "");
  const auto count = spot[3].get<int64_t>();
  if (count == 0) return text + " is not finite";
  return text + fmt::format(": {} of {} elements {} not finite{}; the first, {}, is {}", count,
                            spot[4].get<int64_t>(), count == 1 ? "is" : "are",
                            where.size() > 1 ? fmt::format(" on rank {}", where[0]) : "",
                            spot[5].get<std::string>(), spot[6].get<std::string>());
}

NonfiniteReport Search::agree() {
  Communicator& world = s_.mesh.world();
  Json mine = Json::array();
  for (const auto& spot : spots_)
    mine.push_back(spot ? Json{spot->order, spot->micro_batch, spot->what, spot->count, spot->of, spot->first,
                               spot->value}
                        : Json());
  const auto all = gather_bytes(world, mine.dump(), 0);
  std::string text;
  if (world.rank() == 0) {
    std::vector<Json> ranks;
    ranks.reserve(all.size());
    for (const std::string& one : all) ranks.push_back(Json::parse(one));
    Json report{{"in_weights", false}, {"text", ""}};
    const auto add = [&](Kind kind) {
      text += line(static_cast<size_t>(kind), ranks, text.empty());
      return text.empty();
    };
    report["in_weights"] = !add(Kind::weight);
    for (Kind kind : {Kind::output, Kind::loss, Kind::input_gradient, Kind::gradient}) add(kind);
    if (text.empty()) {
      add(Kind::gradient_left);
      add(Kind::gradient_sum);
      text +=
          "\n  the same step, computed once more, is finite: this fault does not repeat itself, as damage in "
          "a "
          "processor, a memory or a network would not";
      if (!s_.has_gradients)
        text +=
            "; the gradients that it had left were overwritten by the step after it, which the device had "
            "begun";
    }
    report["text"] = text;
    text = report.dump();
  }
  broadcast_bytes(world, text, 0);
  const Json report = Json::parse(text);
  return {report["text"], report["in_weights"]};
}

}  // namespace

NonfiniteReport find_nonfinite(const NonfiniteSearch& search) {
  return Search(search).run();
}

}  // namespace triax
