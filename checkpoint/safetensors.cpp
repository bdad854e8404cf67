#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace triax {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are little-endian, and read as they are");

constexpr int64_t largest_header = 100'000'000;  // the format's own limit
constexpr int64_t length_bytes = 8;

// Bits of an element of every type that the format knows.
const std::map<std::string, int64_t, std::less<>>& known_types() {
  static const std::map<std::string, int64_t, std::less<>> bits = {
      {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},    {"F8_E4M3", 8}, {"F8_E8M0", 8},
      {"U16", 16},    {"I16", 16},    {"F16", 16},        {"BF16", 16},      {"U32", 32},    {"I32", 32},
      {"F32", 32},    {"U64", 64},    {"I64", 64},        {"F64", 64},       {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
  return bits;
}

std::string_view type_in_file(StoredType type) {
  return type == StoredType::f32 ? "F32" : type == StoredType::bf16 ? "BF16" : "F16";
}

// a * b, or none where that is no int64.
std::optional<int64_t> product(int64_t a, int64_t b) {
  int64_t c;
  if (__builtin_mul_overflow(a, b, &c)) return std::nullopt;
  return c;
}

// Objects with a key twice are legal JSON, of which a parser keeps either.
json parse_once(const std::string& text, const std::filesystem::path& path) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  try {
    json header = json::parse(text, watch);
    check(twice.empty(), "{} is damaged: its header names {} twice", path.string(), twice);
    return header;
  } catch (const json::exception& e) {
    fail("{} is damaged, or no safetensors file: its header is not JSON: {}", path.string(), e.what());
  }
}

int64_t whole_number(const json& j, const std::filesystem::path& path, const std::string& tensor,
                     const char* what) {
  check(j.is_number_unsigned() && j.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()},
        "{} is damaged: the {} of {} has {} where a whole number belongs", path.string(), what, tensor,
        j.dump());
  return j.get<int64_t>();
}

SafeTensor read_entry(const std::string& name, const json& j, const std::filesystem::path& path) {
  check(j.is_object() && j.size() == 3 && j.contains("dtype") && j["dtype"].is_string() &&
            j.contains("shape") && j["shape"].is_array() && j.contains("data_offsets") &&
            j["data_offsets"].is_array() && j["data_offsets"].size() == 2,
        "{} is damaged: what its header says of {} is not a dtype, a shape and two data_offsets",
        path.string(), name);
  SafeTensor t{name, j["dtype"].get<std::string>()};
  const auto known = known_types().find(t.dtype);
  check(known != known_types().end(), "{}: {} has the unknown type {}", path.string(), name, t.dtype);
  std::optional<int64_t> elements = 1;
  for (const json& extent : j["shape"]) {
    t.shape.push_back(whole_number(extent, path, name, "shape"));
    if (elements) elements = product(*elements, t.shape.back());
  }
  t.begin = whole_number(j["data_offsets"][0], path, name, "place");
  t.end = whole_number(j["data_offsets"][1], path, name, "place");
  const auto bits = elements ? product(*elements, known->second) : std::nullopt;
  check(t.begin <= t.end && bits && *bits % 8 == 0 && t.end - t.begin == *bits / 8,
        "{} is damaged: {} of type {} and shape {} can't take the bytes {} to {}", path.string(), name,
        t.dtype, j["shape"].dump(), t.begin, t.end);
  return t;
}

}  // namespace

int64_t SafeTensor::numel() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

std::optional<StoredType> SafeTensor::type() const {
  for (StoredType type : {StoredType::f32, StoredType::bf16, StoredType::f16})
    if (dtype == type_in_file(type)) return type;
  return std::nullopt;
}

SafeTensorsFile::SafeTensorsFile(std::filesystem::path path) : path_(std::move(path)), file_(path_) {
  check(file_.size() >= length_bytes, "{} is no safetensors file: it has {} bytes", path_.string(),
        file_.size());
  uint64_t length;
  file_.read(0, &length, sizeof length);
  check(length <= static_cast<uint64_t>(largest_header),
        "{} is damaged, or no safetensors file: its header would have {} bytes", path_.string(), length);
  const int64_t data_begin = length_bytes + static_cast<int64_t>(length);
  check(data_begin <= file_.size(), "{} is truncated: it has {} bytes, its header alone takes {}",
        path_.string(), file_.size(), data_begin);
  std::string header(static_cast<size_t>(length), '\0');
  file_.read(length_bytes, header.data(), header.size());
  parse(header, data_begin);
  check_places(data_begin);
}

void SafeTensorsFile::parse(const std::string& header, int64_t data_begin) {
  const json j = parse_once(header, path_);
  check(j.is_object(), "{} is damaged: its header is no JSON object", path_.string());
  for (const auto& [name, value] : j.items()) {
    if (name != "__metadata__") {
      tensors_.push_back(read_entry(name, value, path_));
      continue;
    }
    check(value.is_object(), "{} is damaged: its metadata are no JSON object", path_.string());
    for (const auto& [key, text] : value.items()) {
      check(text.is_string(), "{} is damaged: its metadata {} is no text", path_.string(), key);
      metadata_[key] = text.get<std::string>();
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const SafeTensor& a, const SafeTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].begin += data_begin;
    tensors_[i].end += data_begin;
    index_[tensors_[i].name] = i;
  }
}

void SafeTensorsFile::check_places(int64_t data_begin) const {
  int64_t at = data_begin;
  for (const SafeTensor& t : tensors_) {
    check(t.begin >= at, "{} is damaged: {} begins at byte {}, within the tensor before it", path_.string(),
          t.name, t.begin);
    check(t.begin == at, "{} is damaged: no tensor has the bytes {} to {}, before {}", path_.string(), at,
          t.begin, t.name);
    check(t.end <= file_.size(), "{} is truncated: {} ends at byte {} of {}", path_.string(), t.name, t.end,
          file_.size());
    at = t.end;
  }
  check(at == file_.size(), "{} is damaged: {} bytes follow its last tensor", path_.string(),
        file_.size() - at);
}

const SafeTensor* SafeTensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void SafeTensorsFile::read(const SafeTensor& tensor, int64_t first, int64_t count, float* out) const {
  const auto type = tensor.type();
  check(type.has_value(), "{}: {} has the type {}; F32, BF16 and F16 can be read", path_.string(),
        tensor.name, tensor.dtype);
  check(first >= 0 && count >= 0 && first + count <= tensor.numel(), "{}: {} has no elements {} to {}",
        path_.string(), tensor.name, first, first + count);
  const int64_t at = tensor.begin + first * size_of(*type);
  if (*type == StoredType::f32) return file_.read(at, out, static_cast<size_t>(count) * 4);
  buffer_.resize(std::max(buffer_.size(), static_cast<size_t>(count * size_of(*type))));
  file_.read(at, buffer_.data(), static_cast<size_t>(count * size_of(*type)));
  decode(*type, buffer_.data(), count, out);
}

SafeTensorsWriter::SafeTensorsWriter(const std::filesystem::path& path, std::vector<Item> items,
                                     StoredType type, const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path), items_(std::move(items)), type_(type) {
  json header{{"__metadata__", metadata}};
  int64_t at = 0;
  for (const Item& item : items_) {
    check(item.name != "__metadata__" && !header.contains(item.name), "{}: {} would be written twice",
          path_.string(), item.name);
    const int64_t begin = at;
    at += SafeTensor{item.name, {}, item.shape}.numel() * size_of(type_);
    header[item.name] = {
        {"dtype", type_in_file(type_)}, {"shape", item.shape}, {"data_offsets", {begin, at}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data are aligned
  const uint64_t length = text.size();
  check(length <= uint64_t{largest_header}, "{}: a header of {} bytes is too long for the format",
        path_.string(), length);
  file_.append(&length, sizeof length);
  file_.append(text.data(), text.size());
  if (!items_.empty()) left_ = SafeTensor{{}, {}, items_[0].shape}.numel();
  next_item();
}

// Past items that are complete.
void SafeTensorsWriter::next_item() {
  while (left_ == 0 && item_ < items_.size())
    if (++item_ < items_.size()) left_ = SafeTensor{{}, {}, items_[item_].shape}.numel();
}

void SafeTensorsWriter::append(const float* data, int64_t count) {
  while (count > 0) {
    check(item_ < items_.size(), "{}: more elements than its tensors have", path_.string());
    const int64_t part = std::min({count, left_, int64_t{1} << 18});
    buffer_.resize(static_cast<size_t>(part * size_of(type_)));
    const int64_t lost = encode(type_, data, part, buffer_.data());
    if (lost >= 0)
      fail("{} holds {}, which {} can't hold; write it as bf16 or fp32", items_[item_].name, data[lost],
           name_of(type_));
    file_.append(buffer_.data(), buffer_.size());
    data += part;
    count -= part;
    left_ -= part;
    next_item();
  }
}

void SafeTensorsWriter::finish() {
  check(item_ == items_.size(), "{}: {} elements of {} have not been written", path_.string(), left_,
        item_ < items_.size() ? items_[item_].name : "nothing");
  file_.finish();
}

}  // namespace triax
