#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "checkpoint/crc32c.h"
#include "checkpoint/file_io.h"

namespace triax {
namespace {

using nlohmann::json;

json to_json(const Shape& shape) {
  return json(std::vector<int64_t>(shape.begin(), shape.end()));
}

Shape to_shape(const json& list) {
  const auto extents = list.get<std::vector<int64_t>>();
  if (extents.empty() || extents.size() > Shape::max_rank) throw std::invalid_argument("a shape's length");
  Shape shape;
  for (int64_t e : extents) {
    if (e < 0) throw std::invalid_argument("a negative extent");
    switch (shape.rank()) {  // shapes grow through their constructor alone
      case 0:
        shape = {e};
        break;
      case 1:
        shape = {shape[0], e};
        break;
      case 2:
        shape = {shape[0], shape[1], e};
        break;
      default:
        shape = {shape[0], shape[1], shape[2], e};
    }
  }
  return shape;
}

std::string hex(uint64_t value) {
  return fmt::format("{:016x}", value);
}

uint64_t from_hex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size())
    throw std::invalid_argument(fmt::format("'{}' is no hexadecimal number", text));
  return value;
}

std::string tensor_line(const TensorRecord& t) {
  // Written by hand to keep one tensor on one line in this order.
  return fmt::format(R"({{"name": {}, "kind": "{}", "path": {}, "dtype": "f32", "shape": {}, "hash": "{}"}})",
                     json(t.name).dump(), name_of(t.kind), json(t.path()).dump(), to_json(t.shape).dump(),
                     hex(t.hash));
}

std::string file_lines(const FileRecord& f) {
  std::string out = fmt::format(R"({{"name": {}, "size": {}, "crc32c": "{:08x}", "boxes": [)",
                                json(f.name).dump(), f.size, f.crc);
  for (size_t i = 0; i < f.boxes.size(); ++i) {
    const BoxRecord& b = f.boxes[i];
    out +=
        fmt::format("{}\n      [{}, {}, {}, {}, \"{}\"]", i ? "," : "", b.tensor,
                    to_json(b.box.offset).dump(), to_json(b.box.extent).dump(), b.byte_offset, hex(b.hash));
  }
  return out + "]}";
}

std::string checksum_line(uint32_t crc) {
  return fmt::format("  \"checksum\": \"{:08x}\"\n}}\n", crc);
}

FileRecord file_from(const json& j, const std::vector<TensorRecord>& tensors) {
  FileRecord f;
  f.name = j.at("name").get<std::string>();
  f.size = j.at("size").get<int64_t>();
  f.crc = static_cast<uint32_t>(from_hex(j.at("crc32c").get<std::string>()));
  if (f.name.empty() || f.name.find('/') != std::string::npos || f.name[0] == '.')
    throw std::invalid_argument(fmt::format("'{}' is no file of this folder", f.name));
  for (const json& row : j.at("boxes")) {
    BoxRecord b;
    b.tensor = row.at(0).get<int>();
    b.box = {to_shape(row.at(1)), to_shape(row.at(2))};
    b.byte_offset = row.at(3).get<int64_t>();
    b.hash = from_hex(row.at(4).get<std::string>());
    const Shape& shape = tensors.at(static_cast<size_t>(b.tensor)).shape;
    if (b.box.offset.rank() != shape.rank() || b.box.extent.rank() != shape.rank() ||
        !(intersect(b.box, whole(shape)) == b.box))
      throw std::invalid_argument(fmt::format("a box {} outside its tensor", to_string(b.box)));
    const int64_t end = f.boxes.empty() ? 0 : f.boxes.back().byte_offset + 4 * f.boxes.back().box.numel();
    if (b.byte_offset < end || b.byte_offset + 4 * b.box.numel() > f.size)
      throw std::invalid_argument(fmt::format("a box outside {}", f.name));
    f.boxes.push_back(b);
  }
  return f;
}

CheckpointInfo info_from(const json& j) {
  CheckpointInfo info;
  info.id = j.at("id").get<std::string>();
  info.step = j.at("step").get<int64_t>();
  info.consumed_samples = j.at("consumed_samples").get<int64_t>();
  info.created = j.at("created").get<std::string>();
  info.grid = j.at("grid");
  info.config = j.at("config").get<std::string>();
  info.extra = j.at("extra");
  for (const json& t : j.at("tensors"))
    info.tensors.push_back({state_kind(t.at("kind").get<std::string>()), t.at("name").get<std::string>(),
                            to_shape(t.at("shape")), from_hex(t.at("hash").get<std::string>())});
  for (const json& f : j.at("files")) info.files.push_back(file_from(f, info.tensors));
  return info;
}

// The hash of a tensor and its size follow from its boxes; a manifest that disagrees with itself is damaged.
void check_consistent(const CheckpointInfo& info) {
  std::vector<uint64_t> hashes(info.tensors.size());
  std::vector<int64_t> elements(info.tensors.size());
  for (const FileRecord& f : info.files)
    for (const BoxRecord& b : f.boxes) {
      hashes[static_cast<size_t>(b.tensor)] += b.hash;
      elements[static_cast<size_t>(b.tensor)] += b.box.numel();
    }
  for (size_t i = 0; i < info.tensors.size(); ++i)
    if (hashes[i] != info.tensors[i].hash || elements[i] != info.tensors[i].shape.numel())
      throw std::invalid_argument(fmt::format("the boxes of {} do not make it up", info.tensors[i].path()));
}

}  // namespace

int64_t CheckpointInfo::bytes() const {
  int64_t sum = 0;
  for (const FileRecord& f : files) sum += f.size;
  return sum;
}

std::string manifest_text(const CheckpointInfo& info) {
  std::string out = fmt::format(
      "{{\n  \"format\": \"triax-checkpoint\",\n  \"format_version\": {},\n  \"id\": {},\n  \"step\": {},\n"
      "  \"consumed_samples\": {},\n  \"created\": {},\n  \"grid\": {},\n  \"extra\": {},\n  \"config\": "
      "{},\n",
      int{format_version}, json(info.id).dump(), info.step, info.consumed_samples, json(info.created).dump(),
      info.grid.dump(), info.extra.dump(), json(info.config).dump());
  out += "  \"tensors\": [";
  for (size_t i = 0; i < info.tensors.size(); ++i)
    out += (i ? ",\n    " : "\n    ") + tensor_line(info.tensors[i]);
  out += "],\n  \"files\": [";
  for (size_t i = 0; i < info.files.size(); ++i)
    out += (i ? ",\n    " : "\n    ") + file_lines(info.files[i]);
  out += "],\n";
  return out + checksum_line(crc32c(0, out.data(), out.size()));
}

CheckpointInfo parse_manifest(const std::string& text, const std::filesystem::path& folder) {
  const std::string file = (folder / manifest_file).string();
  const size_t tail = checksum_line(0).size();
  if (text.size() < tail)
    throw DamagedCheckpoint(fmt::format("{} is damaged: it ends after {} bytes", file, text.size()));
  const size_t body = text.size() - tail;
  const std::string expected = checksum_line(crc32c(0, text.data(), body));
  if (text.compare(body, tail, expected) != 0)
    throw DamagedCheckpoint(fmt::format("{} is damaged: its own checksum does not fit its content", file));
  int version = 0;
  try {
    const json j = json::parse(text);
    version = j.at("format_version").get<int>();
    if (version == format_version) {
      CheckpointInfo info = info_from(j);
      info.folder = folder;
      check_consistent(info);
      return info;
    }
  } catch (const std::exception& e) {
    throw DamagedCheckpoint(fmt::format("{} is damaged: {}", file, e.what()));
  }
  fail("{} has format version {}; this program reads version {}. Use the triax that wrote it, or a newer one",
       file, version, int{format_version});
}

CheckpointInfo read_manifest(const std::filesystem::path& folder) {
  std::string text;
  try {
    text = read_file(folder / manifest_file);
  } catch (const Error& e) {
    std::error_code error;
    const auto type = std::filesystem::status(folder / manifest_file, error).type();
    if (type != std::filesystem::file_type::not_found) throw;  // no permission, say: nothing is known of it
    throw DamagedCheckpoint(fmt::format("{} is no complete checkpoint: {}", folder.string(), e.what()));
  }
  return parse_manifest(text, folder);
}

bool natural_less(std::string_view a, std::string_view b) {
  auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      uint64_t x = 0, y = 0;
      const auto xe = std::from_chars(a.data() + i, a.data() + a.size(), x).ptr;
      const auto ye = std::from_chars(b.data() + j, b.data() + b.size(), y).ptr;
      if (x != y) return x < y;
      i = static_cast<size_t>(xe - a.data());
      j = static_cast<size_t>(ye - b.data());
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

}  // namespace triax
