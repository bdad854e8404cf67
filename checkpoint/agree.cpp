#include "checkpoint/agree.h"

#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"

namespace triax {
namespace {

enum Outcome : int64_t { fine = 0, damaged = 1, fault = 2, usage = 3 };  // the highest of all ranks counts

// What went wrong on a rank; parts, not an exception, because they travel.
struct Failure {
  Outcome outcome = fine;
  std::string message;
  std::source_location place;
};

Failure run(const std::function<void()>& body, std::source_location place) {
  try {
    body();
    return {fine, "", place};
  } catch (const DamagedCheckpoint& e) {
    return {damaged, e.what(), e.location()};
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::aborted) throw;
    return {e.kind() == ErrorKind::usage ? usage : fault, e.what(), e.location()};
  } catch (const std::exception& e) {
    return {fault, e.what(), place};
  }
}

// "rank 3: checkpoint/file_io.cpp:88: writing ...", a line for each rank but `self`.
std::string quote(const nlohmann::json& failures, int self) {
  constexpr size_t shown_at_most = 4;
  std::string out;
  size_t shown = 0, more = 0;
  for (const nlohmann::json& f : failures) {
    if (f.at(0).get<int>() == self) continue;
    if (shown == shown_at_most) {
      ++more;
      continue;
    }
    if (shown++) out += "\n";
    out += fmt::format("rank {}: {}", f.at(0).get<int>(), f.at(1).get<std::string>());
  }
  if (more) out += fmt::format("\nand {} more ranks", more);
  return out;
}

// The failures of all ranks, known to all: [[rank, words], ...]. Collective.
nlohmann::json share(Communicator& world, const Failure& mine) {
  std::string words = mine.message;
  if (mine.outcome == fault || mine.outcome == damaged)
    words = fmt::format("{}: {}", to_string(mine.place), words);
  const auto all = gather_bytes(world, mine.outcome == fine ? "" : words, 0);
  nlohmann::json list = nlohmann::json::array();
  for (size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty()) list.push_back({r, all[r]});
  // Words of the system may be in any encoding.
  std::string text = list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  broadcast_bytes(world, text, 0);
  return nlohmann::json::parse(text);
}

}  // namespace

void collect_bytes(Communicator& world, std::string_view mine, int root,
                   const std::function<void(int rank, std::string bytes)>& visit) {
  auto bytes_of = [](std::string& text) {
    return Tensor(text.data(), DType::u8, {static_cast<int64_t>(text.size())});
  };
  if (world.rank() != root) {
    std::string copy(mine);
    int64_t length = static_cast<int64_t>(mine.size());
    world.send(Tensor::of(&length, {1}), root).wait();
    if (length) world.send(bytes_of(copy), root).wait();
    return;
  }
  for (int r = 0; r < world.size(); ++r) {
    if (r == root) {
      visit(r, std::string(mine));
      continue;
    }
    int64_t length = 0;
    world.recv(Tensor::of(&length, {1}), r).wait();
    std::string text(static_cast<size_t>(length), '\0');
    if (length) world.recv(bytes_of(text), r).wait();
    visit(r, std::move(text));
  }
}

std::vector<std::string> gather_bytes(Communicator& world, std::string_view mine, int root) {
  std::vector<std::string> all(world.rank() == root ? static_cast<size_t>(world.size()) : 0);
  collect_bytes(world, mine, root,
                [&](int rank, std::string bytes) { all[static_cast<size_t>(rank)] = std::move(bytes); });
  return all;
}

void broadcast_bytes(Communicator& world, std::string& bytes, int root) {
  int64_t length = static_cast<int64_t>(bytes.size());
  world.broadcast(Tensor::of(&length, {1}), root).wait();
  bytes.resize(static_cast<size_t>(length));
  if (length == 0) return;
  world.broadcast(Tensor(bytes.data(), DType::u8, {length}), root).wait();
}

void collectively(Communicator& world, const std::function<void()>& body, std::source_location place) {
  const Failure mine = run(body, place);
  int64_t worst = fine;
  const int64_t outcome = mine.outcome;
  world.all_reduce(Tensor::of(&outcome, {1}), Tensor::of(&worst, {1}), ReduceOp::max).wait();
  if (worst == fine) return;
  const std::string others = quote(share(world, mine), world.rank());
  const ErrorKind cause = worst == usage ? ErrorKind::usage : ErrorKind::fault;
  const ErrorKind kind = mine.outcome == fine ? ErrorKind::aborted : cause;
  std::string text = mine.message;
  if (!others.empty()) text += (text.empty() ? "" : "\n") + others;
  if (worst == damaged) throw DamagedCheckpoint(text, mine.place, kind);
  throw AgreedError(kind, cause, text, mine.place);
}

}  // namespace triax
