#include "checkpoint/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace triax {
namespace {

// A rank's pieces travel between processes of one program, so a plain binary form will do.
void put(std::string& out, int64_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class Cursor {
 public:
  explicit Cursor(const std::string& bytes) : bytes_(bytes) {}
  bool done() const { return at_ == bytes_.size(); }
  int64_t number() {
    int64_t value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto n = static_cast<size_t>(number());
    return std::string(take(n), n);
  }
  /// Fills in the extents of a shape that has its rank already.
  void fill(Shape& shape) {
    for (int i = 0; i < shape.rank(); ++i) shape[i] = number();
  }

 private:
  const char* take(size_t n) {
    check(n <= bytes_.size() - at_, "a description of pieces ends too early");
    const char* p = bytes_.data() + at_;
    at_ += n;
    return p;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

Shape shape_of_rank(int64_t rank) {
  switch (rank) {
    case 1:
      return {0};
    case 2:
      return {0, 0};
    case 3:
      return {0, 0, 0};
    case 4:
      return {0, 0, 0, 0};
    default:
      fail("a tensor with {} dimensions can't be saved; 1 to 4 are possible", rank);
  }
}

struct Part {
  Box box;
  int rank;
};

struct Collected {
  Shape global;
  std::vector<Part> parts;
  std::vector<std::pair<int, int>> pieces;  // (rank, piece)
};

using Tensors = std::map<std::pair<StateKind, std::string>, Collected>;

void collect(const std::string& description, int rank, Tensors& tensors, std::vector<Box>& boxes) {
  Cursor in(description);
  while (!in.done()) {
    const auto kind = static_cast<StateKind>(in.number());
    const std::string name = in.text();
    Shape global = shape_of_rank(in.number());
    Box box{global, global};
    in.fill(global);
    in.fill(box.offset);
    in.fill(box.extent);
    const std::string path = logical_path(kind, name);
    Collected& tensor = tensors.try_emplace({kind, name}, Collected{global, {}, {}}).first->second;
    check(tensor.global == global, "{}: rank {} says its shape is {}, rank {} says {}", path,
          tensor.pieces.empty() ? rank : tensor.pieces[0].first, to_string(tensor.global), rank,
          to_string(global));
    check(intersect(box, whole(global)) == box || empty(box), "{}: box {} of rank {} lies outside shape {}",
          path, to_string(box), rank, to_string(global));
    tensor.pieces.emplace_back(rank, static_cast<int>(boxes.size()));
    boxes.push_back(box);
    if (!empty(box)) tensor.parts.push_back({box, rank});
  }
}

// A sweep along dimension 0: only boxes whose rows meet are compared.
void check_overlaps(const std::string& path, std::vector<Part>& parts) {
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.box.offset[0] < b.box.offset[0]; });
  std::vector<const Part*> active;
  for (const Part& part : parts) {
    std::erase_if(active,
                  [&](const Part* p) { return p->box.offset[0] + p->box.extent[0] <= part.box.offset[0]; });
    for (const Part* p : active)
      check(empty(intersect(p->box, part.box)), "{}: box {} of rank {} overlaps box {} of rank {}", path,
            to_string(part.box), part.rank, to_string(p->box), p->rank);
    active.push_back(&part);
  }
}

void check_cover(const std::string& path, Collected& tensor) {
  check_overlaps(path, tensor.parts);
  int64_t elements = 0;
  for (const Part& p : tensor.parts) elements += p.box.numel();
  // Disjoint boxes inside the tensor that count as many elements as it has cover it.
  check(elements == tensor.global.numel(), "{}: the ranks' boxes hold {} of its {} elements ({})", path,
        elements, tensor.global.numel(), to_string(tensor.global));
}

}  // namespace

std::string describe_pieces(std::span<const StatePiece> pieces) {
  std::string out;
  for (const StatePiece& p : pieces) {
    check(p.global.rank() >= 1 && p.box.offset.rank() == p.global.rank() &&
              p.box.extent.rank() == p.global.rank(),
          "{}: box {} does not fit shape {}", logical_path(p.kind, p.name), to_string(p.box),
          to_string(p.global));
    check(!p.name.empty() && p.name.find('/') == std::string::npos && p.name[0] != '.',
          "'{}' can't be the name of a tensor: it is empty, starts with a dot or has a slash", p.name);
    check(p.data != nullptr || empty(p.box), "{}: box {} has no data", p.name, to_string(p.box));
    put(out, static_cast<int64_t>(p.kind));
    put(out, static_cast<int64_t>(p.name.size()));
    out += p.name;
    put(out, p.global.rank());
    for (const Shape* s : {&p.global, &p.box.offset, &p.box.extent})
      for (int64_t e : *s) put(out, e);
  }
  return out;
}

SavePlan plan_save(const std::vector<std::string>& descriptions) {
  Tensors tensors;
  SavePlan plan;
  plan.tensor.resize(descriptions.size());
  plan.boxes.resize(descriptions.size());
  for (size_t r = 0; r < descriptions.size(); ++r) {
    collect(descriptions[r], static_cast<int>(r), tensors, plan.boxes[r]);
    plan.tensor[r].resize(plan.boxes[r].size());
  }
  check(!tensors.empty(), "there is nothing to save: no rank has a piece");
  std::vector<Tensors::value_type*> sorted;
  for (auto& entry : tensors) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return a->first.first != b->first.first ? a->first.first < b->first.first
                                            : natural_less(a->first.second, b->first.second);
  });
  for (auto* entry : sorted) {
    TensorRecord record{entry->first.first, entry->first.second, entry->second.global, 0};
    check_cover(record.path(), entry->second);
    for (const auto& [rank, piece] : entry->second.pieces)
      plan.tensor[static_cast<size_t>(rank)][static_cast<size_t>(piece)] =
          static_cast<int>(plan.tensors.size());
    plan.tensors.push_back(std::move(record));
  }
  return plan;
}

}  // namespace triax
