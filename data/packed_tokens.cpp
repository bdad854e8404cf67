#include "data/packed_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/mapped_file.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

enum class Element : uint8_t { u8, i8, i16, i32, i64, u16, u32 };

int64_t size_of(Element element) {
  switch (element) {
    case Element::u8:
    case Element::i8:
      return 1;
    case Element::i16:
    case Element::u16:
      return 2;
    case Element::i32:
    case Element::u32:
      return 4;
    case Element::i64:
      return 8;
  }
  return 0;
}

template <class T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);  // nothing in these files is promised to be aligned
  return value;
}

// Values that are no int32 become -1, which no vocabulary holds.
template <class T>
void convert(const uint8_t* from, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const T value = load<T>(from + i * sizeof(T));
    out[i] = std::in_range<int32_t>(value) ? static_cast<int32_t>(value) : -1;
  }
}

void read_elements(Element element, const uint8_t* from, std::span<int32_t> out) {
  switch (element) {
    case Element::u8:
      return convert<uint8_t>(from, out);
    case Element::i8:
      return convert<int8_t>(from, out);
    case Element::i16:
      return convert<int16_t>(from, out);
    case Element::i32:
      return convert<int32_t>(from, out);
    case Element::i64:
      return convert<int64_t>(from, out);
    case Element::u16:
      return convert<uint16_t>(from, out);
    case Element::u32:
      return convert<uint32_t>(from, out);
  }
}

void check_range(const TokenSource& source, int64_t first, int64_t count) {
  check(first >= 0 && count <= source.tokens() && first <= source.tokens() - count,
        "{} tokens from {} on were asked of {}, which has {}", count, first, source.name(), source.tokens());
}

// One run of tokens behind a header.
class LlmcTokens final : public TokenSource {
 public:
  explicit LlmcTokens(const std::string& path) : file_(path) {
    const auto bytes = file_.bytes();
    if (bytes.size() < header_bytes)
      fail_usage("{} has {} bytes, less than the {} of llm.c's header", path, bytes.size(), header_bytes);
    const auto word = [&](size_t i) { return load<int32_t>(bytes.data() + 4 * i); };
    const bool narrow = word(0) == 20240520 && word(1) == 1, wide = word(0) == 20240801 && word(1) == 7;
    if (!narrow && !wide)
      fail_usage(
          "{} begins with magic {} and version {}, which is no token file of llm.c (20240520 and 1: uint16, "
          "or "
          "20240801 and 7: uint32); a .bin of Megatron-LM needs its .idx beside it",
          path, word(0), word(1));
    element_ = narrow ? Element::u16 : Element::u32;
    tokens_ = word(2);
    const int64_t expected = static_cast<int64_t>(header_bytes) + tokens_ * size_of(element_);
    if (tokens_ < 1 || static_cast<int64_t>(bytes.size()) != expected)
      fail_usage(
          "{} has {} bytes; its header says {} tokens, which would make {}: the file is damaged or cut off",
          path, bytes.size(), tokens_, expected);
  }
  int64_t tokens() const override { return tokens_; }
  void read(int64_t first, std::span<int32_t> out) const override {
    check_range(*this, first, static_cast<int64_t>(out.size()));
    read_elements(element_, file_.bytes().data() + header_bytes + first * size_of(element_), out);
  }
  int64_t vocabulary() const override { return 0; }
  const std::string& name() const override { return file_.path(); }
  std::string fingerprint() const override { return "llm.c:" + content_fingerprint(file_.bytes()); }

 private:
  static constexpr size_t header_bytes = 1024;
  MappedFile file_;
  Element element_ = Element::u16;
  int64_t tokens_ = 0;
};

// Reads an index front to back, and notices its end.
class IndexReader {
 public:
  explicit IndexReader(const MappedFile& file) : file_(file) {}
  template <class T>
  T next(const char* what) {
    return load<T>(skip(sizeof(T), 1, what));
  }
  // `count` elements of `bytes` each.
  const uint8_t* skip(int64_t bytes, uint64_t count, const char* what) {
    const uint64_t left = file_.bytes().size() - at_;
    if (count > left / static_cast<uint64_t>(bytes))
      fail_usage("{} ends at byte {}, in the middle of its {}: the file is damaged or cut off", file_.path(),
                 file_.bytes().size(), what);
    const uint8_t* place = file_.bytes().data() + at_;
    at_ += static_cast<uint64_t>(bytes) * count;
    return place;
  }
  uint64_t at() const { return at_; }

 private:
  const MappedFile& file_;
  uint64_t at_ = 0;
};

// Where the sequences stand in the data file, as the index tells.
struct Sequences {
  Element element = Element::u16;
  int64_t count = 0;
  std::function<int64_t(int64_t)> length;  ///< elements of sequence i
  std::function<int64_t(int64_t)> offset;  ///< its first byte in the data file
};

Element element_of(uint64_t code, const std::string& path) {
  switch (code) {
    case 1:
      return Element::u8;
    case 2:
      return Element::i8;
    case 3:
      return Element::i16;
    case 4:
      return Element::i32;
    case 5:
      return Element::i64;
    case 8:
      return Element::u16;
    default:
      break;
  }
  fail_usage(
      "{} says that its elements are of type {}; tokens are 1 (uint8), 2 (int8), 3 (int16), 4 (int32), "
      "5 (int64) or 8 (uint16)",
      path, code);
}

void require_version(uint64_t version, const std::string& path) {
  if (version != 1) fail_usage("{} is an index of version {}; version 1 is known", path, version);
}

// Nothing here uses documents, but an index whose documents are nonsense is damaged elsewhere, too, and
// Megatron-LM would not read it.
void require_documents(const uint8_t* documents, uint64_t count, uint64_t sequences,
                       const std::string& path) {
  int64_t before = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto first = load<int64_t>(documents + 8 * i);
    if (first < before || static_cast<uint64_t>(first) > sequences)
      fail_usage(
          "{} says that document {} begins with sequence {}, where one from {} to {} would be: the file is "
          "damaged",
          path, i, first, before, sequences);
    before = first;
  }
}

// magic[9], version u64, type u8, sequences u64, documents u64; lengths i32[sequences], offsets
// i64[sequences], documents i64[documents], then perhaps a mode i8 for each sequence (multimodal).
Sequences read_mmap_index(IndexReader& index, const MappedFile& file) {
  Sequences s;
  require_version(index.next<uint64_t>("version"), file.path());
  s.element = element_of(index.next<uint8_t>("element type"), file.path());
  const auto sequences = index.next<uint64_t>("number of sequences");
  const auto documents = index.next<uint64_t>("number of documents");
  const uint8_t* lengths = index.skip(4, sequences, "sequence lengths");
  const uint8_t* offsets = index.skip(8, sequences, "sequence offsets");
  require_documents(index.skip(8, documents, "documents"), documents, sequences, file.path());
  const uint64_t rest = file.bytes().size() - index.at();
  if (rest != 0 && rest != sequences)
    fail_usage(
        "{} has {} bytes behind its documents, where none or one for each of the {} sequences would be",
        file.path(), rest, sequences);
  s.count = static_cast<int64_t>(sequences);
  s.length = [lengths](int64_t i) { return int64_t{load<int32_t>(lengths + 4 * i)}; };
  s.offset = [offsets](int64_t i) { return load<int64_t>(offsets + 8 * i); };
  return s;
}

// magic[8], version u64, type u64, element size u64, items u64, sizes u64, documents u64; first size of each
// item i64[items + 1], offsets in elements i64[items + 1], sizes i64[sizes], documents i64[documents].
Sequences read_tnt_index(IndexReader& index, const MappedFile& file) {
  Sequences s;
  require_version(index.next<uint64_t>("version"), file.path());
  s.element = element_of(index.next<uint64_t>("element type"), file.path());
  const int64_t width = size_of(s.element);
  const auto told = index.next<uint64_t>("element size");
  if (told != static_cast<uint64_t>(width))
    fail_usage("{} says that an element has {} bytes; of its type it has {}", file.path(), told, width);
  const auto items = index.next<uint64_t>("number of items");
  const auto sizes = index.next<uint64_t>("number of sizes");
  const auto documents = index.next<uint64_t>("number of documents");
  index.skip(8, items + 1, "items");
  const uint8_t* offsets = index.skip(8, items + 1, "offsets");
  index.skip(8, sizes, "sizes");
  require_documents(index.skip(8, documents, "documents"), documents, sizes, file.path());
  s.count = static_cast<int64_t>(items);
  s.length = [offsets](int64_t i) {
    return load<int64_t>(offsets + 8 * (i + 1)) - load<int64_t>(offsets + 8 * i);
  };
  s.offset = [offsets, width](int64_t i) { return load<int64_t>(offsets + 8 * i) * width; };
  return s;
}

class MegatronTokens final : public TokenSource {
 public:
  explicit MegatronTokens(const std::string& prefix) : data_(prefix + ".bin"), index_(prefix + ".idx") {
    IndexReader index(index_);
    const auto begins_with = [&](std::string_view magic) {
      return index_.bytes().size() >= magic.size() &&
             std::memcmp(index_.bytes().data(), magic.data(), magic.size()) == 0;
    };
    constexpr std::string_view mmap_magic{"MMIDIDX\0\0", 9}, tnt_magic{"TNTIDX\0\0", 8};
    if (begins_with(mmap_magic)) {
      index.skip(1, mmap_magic.size(), "magic");
      take(read_mmap_index(index, index_));
    } else if (begins_with(tnt_magic)) {
      index.skip(1, tnt_magic.size(), "magic");
      take(read_tnt_index(index, index_));
    } else {
      fail_usage("{} begins neither with MMIDIDX nor with TNTIDX: it is no index of Megatron-LM",
                 index_.path());
    }
  }

  int64_t tokens() const override { return tokens_; }
  void read(int64_t first, std::span<int32_t> out) const override {
    check_range(*this, first, static_cast<int64_t>(out.size()));
    size_t run = static_cast<size_t>(std::upper_bound(runs_.begin(), runs_.end(), first,
                                                      [](int64_t t, const Run& r) { return t < r.token; }) -
                                     runs_.begin() - 1);
    while (!out.empty()) {
      const int64_t end = run + 1 < runs_.size() ? runs_[run + 1].token : tokens_;
      const auto count =
          static_cast<size_t>(std::min<int64_t>(end - first, static_cast<int64_t>(out.size())));
      const int64_t at = runs_[run].byte + (first - runs_[run].token) * size_of(element_);
      read_elements(element_, data_.bytes().data() + at, out.first(count));
      out = out.subspan(count);
      first = end;
      ++run;
    }
  }
  int64_t vocabulary() const override { return 0; }
  const std::string& name() const override { return data_.path(); }
  std::string fingerprint() const override {
    return fmt::format("megatron:{}:{}", content_fingerprint(data_.bytes()),
                       content_fingerprint(index_.bytes()));
  }

 private:
  // Sequences that lie one behind the other: usually all of them in a single run.
  struct Run {
    int64_t token, byte;
  };

  void take(const Sequences& s) {
    element_ = s.element;
    const auto bytes = static_cast<int64_t>(data_.bytes().size());
    int64_t next = -1;  // where the run would go on
    for (int64_t i = 0; i < s.count; ++i) {
      const int64_t length = s.length(i), offset = s.offset(i);
      if (length < 0 || offset < 0 || offset > bytes || length > (bytes - offset) / size_of(element_))
        fail_usage(
            "{} says that sequence {} has {} elements from byte {} on; {} has {} bytes: one of the two is "
            "damaged, cut off or of another dataset",
            index_.path(), i, length, offset, data_.path(), bytes);
      if (length == 0) continue;
      if (offset != next) runs_.push_back({tokens_, offset});
      next = offset + length * size_of(element_);
      tokens_ += length;
    }
    if (tokens_ == 0) fail_usage("{} has no tokens", index_.path());
    // Whole datasets: a data file that was written on after its index, or belongs to another one.
    if (runs_.size() == 1 && runs_[0].byte == 0 && next != bytes)
      fail_usage("{} has {} bytes, its index {} knows of {}: one of the two is damaged or of another dataset",
                 data_.path(), bytes, index_.path(), next);
  }

  MappedFile data_, index_;
  Element element_ = Element::u16;
  std::vector<Run> runs_;
  int64_t tokens_ = 0;
};

std::string prefix_of(const std::string& path) {
  const fs::path given(path);
  const std::string extension = given.extension().string();
  return extension == ".bin" || extension == ".idx" ? (given.parent_path() / given.stem()).string() : path;
}

}  // namespace

bool is_megatron_path(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(prefix_of(path) + ".idx", ignored);
}

std::unique_ptr<TokenSource> open_megatron_tokens(const std::string& path) {
  return std::make_unique<MegatronTokens>(prefix_of(path));
}

std::unique_ptr<TokenSource> open_llmc_tokens(const std::string& path) {
  return std::make_unique<LlmcTokens>(path);
}

}  // namespace triax
