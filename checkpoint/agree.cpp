#include "checkpoint/agree.h"

#include <algorithm>

#include "checkpoint/manifest.h"
#include "core/error.h"

namespace triax {
namespace {

enum Outcome : int64_t { fine = 0, damaged = 1, fault = 2, usage = 3 };  // the highest of all ranks counts

Outcome run(const std::function<void()>& body, std::string& message) {
  try {
    body();
    return fine;
  } catch (const DamagedCheckpoint& e) {
    message = e.what();
    return damaged;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::aborted) throw;
    message = e.what();
    return e.kind() == ErrorKind::usage ? usage : fault;
  } catch (const std::exception& e) {
    message = e.what();
    return fault;
  }
}

std::string join(const std::vector<std::string>& messages) {
  constexpr int shown_at_most = 4;
  std::string out;
  int shown = 0, more = 0;
  for (size_t r = 0; r < messages.size(); ++r) {
    if (messages[r].empty()) continue;
    if (shown == shown_at_most) {
      ++more;
      continue;
    }
    if (shown++) out += "\n";
    out += messages.size() == 1 ? messages[r] : fmt::format("rank {}: {}", r, messages[r]);
  }
  if (more) out += fmt::format("\nand {} more ranks", more);
  return out;
}

}  // namespace

std::vector<std::string> gather_bytes(Communicator& world, std::string_view mine, int root) {
  auto bytes_of = [](std::string& text) {
    return Tensor(text.data(), DType::u8, {static_cast<int64_t>(text.size())});
  };
  if (world.rank() != root) {
    std::string copy(mine);
    int64_t length = static_cast<int64_t>(mine.size());
    world.send(Tensor::of(&length, {1}), root).wait();
    if (length) world.send(bytes_of(copy), root).wait();
    return {};
  }
  std::vector<std::string> all(static_cast<size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    std::string& text = all[static_cast<size_t>(r)];
    if (r == root) {
      text = mine;
      continue;
    }
    int64_t length = 0;
    world.recv(Tensor::of(&length, {1}), r).wait();
    text.resize(static_cast<size_t>(length));
    if (length) world.recv(bytes_of(text), r).wait();
  }
  return all;
}

void broadcast_bytes(Communicator& world, std::string& bytes, int root) {
  int64_t length = static_cast<int64_t>(bytes.size());
  world.broadcast(Tensor::of(&length, {1}), root).wait();
  bytes.resize(static_cast<size_t>(length));
  if (length == 0) return;
  world.broadcast(Tensor(bytes.data(), DType::u8, {length}), root).wait();
}

void collectively(Communicator& world, const std::function<void()>& body) {
  std::string message;
  const int64_t mine = run(body, message);
  int64_t worst = fine;
  world.all_reduce(Tensor::of(&mine, {1}), Tensor::of(&worst, {1}), ReduceOp::max).wait();
  if (worst == fine) return;
  // A failure without words would be lost among those that have none to tell.
  if (mine != fine && message.empty()) message = "unknown failure";
  const auto messages = gather_bytes(world, message, 0);
  std::string all = world.rank() == 0 ? join(messages) : "";
  broadcast_bytes(world, all, 0);
  if (worst == damaged) throw DamagedCheckpoint(all);
  throw Error(worst == usage ? ErrorKind::usage : ErrorKind::fault, all);
}

}  // namespace triax
