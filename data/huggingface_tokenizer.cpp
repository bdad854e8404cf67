#include "data/huggingface_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/error.h"
#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/mapped_file.h"
#include "data/token_file.h"
#include "data/word_pattern.h"

namespace triax {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Byte-level BPE writes bytes as characters that can be seen: those of Latin-1 that can, as themselves; the
// others, in order, from U+0100 on.
std::array<uint32_t, 256> byte_characters() {
  std::array<uint32_t, 256> table{};
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool visible = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    table[b] = visible ? b : next++;
  }
  return table;
}

// The other way round: characters below U+0144, -1 where none is meant.
std::vector<int32_t> character_bytes() {
  std::vector<int32_t> bytes(0x144, -1);
  const auto table = byte_characters();
  for (int32_t b = 0; b < 256; ++b) bytes[table[b]] = b;
  return bytes;
}

// What a token of the vocabulary stands for; one with other characters stands for itself.
std::string bytes_of(std::string_view token, const std::vector<int32_t>& bytes) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const Character c = first_character(token.data() + at);
    if (c.code >= bytes.size() || bytes[c.code] < 0) return std::string(token);
    out += static_cast<char>(bytes[c.code]);
    at += c.bytes;
  }
  return out;
}

// Whether every byte that UTF-8 can hold is set, and which is not.
std::optional<int> missing_byte(const std::array<int32_t, 256>& tokens) {
  for (int b = 0; b < 0xF5; ++b)
    if (tokens[b] < 0 && b != 0xC0 && b != 0xC1) return b;
  return std::nullopt;
}

// tokenizer.json, looked through part by part; what is not understood is refused by its name.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    const MappedFile file(path);
    root_ = Json::parse(file.bytes().begin(), file.bytes().end(), nullptr, false);
    if (root_.is_discarded() || !root_.is_object())
      fail_usage("{} is no JSON object: it is damaged or cut off", path);
    if (!root_.contains("model") || !part(root_, "model").is_object())
      fail_usage("{} has no model: it is no tokenizer.json of Hugging Face", path);
  }

  WordPattern pattern = WordPattern::none;
  bool add_prefix_space = false;
  bool nfc = false;
  std::array<int32_t, 256> byte_tokens{};
  std::vector<Bpe::Merge> merges;
  std::unordered_map<std::string, int32_t> whole_words;
  std::vector<AddedToken> added;
  std::vector<std::string> decoded;  // by id

  void read() {
    for (const char* key : {"truncation", "padding"})
      if (!part(root_, key).is_null()) refuse(key, "is set; save the tokenizer without it");
    read_normalizer();
    read_pre_tokenizer();
    read_post_processor(part(root_, "post_processor"));
    if (type(part(root_, "decoder")) != "ByteLevel") refuse("decoder", type(part(root_, "decoder")));
    read_model();
    read_added();
  }

 private:
  template <class Text>
  [[noreturn]] void refuse(std::string_view what, const Text& is) const {
    fail_usage(
        "{}: {} {} is not supported; supported are byte-level BPE tokenizers as those of GPT-2, LLaMA-3 and "
        "Qwen2, "
        "SentencePiece models, and bytes",
        path_, what, is);
  }
  static const Json& part(const Json& node, const char* key) {
    static const Json none;
    const auto found = node.find(key);
    return found == node.end() ? none : *found;
  }
  static std::string type(const Json& node) {
    return node.is_object() && part(node, "type").is_string() ? part(node, "type").get<std::string>()
                                                              : "null";
  }
  static bool flag(const Json& node, const char* key, bool otherwise = false) {
    return part(node, key).is_boolean() ? part(node, key).get<bool>() : otherwise;
  }

  void read_normalizer() {
    const Json& node = part(root_, "normalizer");
    nfc = type(node) == "NFC";
    if (type(node) == "Sequence") {
      const Json& list = part(node, "normalizers");
      nfc = list.size() == 1 && type(list[0]) == "NFC";
      if (!nfc && !list.empty()) refuse("normalizer", "Sequence");
    } else if (!nfc && !node.is_null()) {
      refuse("normalizer", type(node));
    }
  }

  void read_byte_level(const Json& node, bool behind_split) {
    const bool regex = flag(node, "use_regex", true);
    add_prefix_space = flag(node, "add_prefix_space", true);
    if (behind_split && regex) refuse("pre_tokenizer", "ByteLevel with use_regex behind a Split");
    if (behind_split && add_prefix_space)
      refuse("pre_tokenizer", "ByteLevel with add_prefix_space behind a Split");
    if (regex) pattern = WordPattern::gpt2;
  }

  void read_split(const Json& node) {
    const Json& regex = part(part(node, "pattern"), "Regex");
    if (!regex.is_string()) refuse("pre_tokenizer", "Split by something else than a Regex");
    const auto known = word_pattern(regex.get<std::string>());
    if (!known) refuse("pre_tokenizer: the pattern", regex.get<std::string>());
    // The patterns match everything, so that what they match and what lies between can change places.
    const std::string behavior =
        part(node, "behavior").is_string() ? part(node, "behavior").get<std::string>() : "";
    const bool inverted = flag(node, "invert");
    if (!(behavior == "Isolated" || (behavior == "Removed" && inverted)))
      refuse("pre_tokenizer", fmt::format("Split with the behavior {}", behavior));
    pattern = *known;
  }

  void read_pre_tokenizer() {
    const Json& node = part(root_, "pre_tokenizer");
    if (type(node) == "ByteLevel") return read_byte_level(node, false);
    if (type(node) != "Sequence") refuse("pre_tokenizer", type(node));
    const Json& list = part(node, "pretokenizers");
    if (list.size() == 1 && type(list[0]) == "ByteLevel") return read_byte_level(list[0], false);
    if (list.size() != 2 || type(list[0]) != "Split" || type(list[1]) != "ByteLevel") {
      std::string kinds;
      for (const Json& item : list) kinds += (kinds.empty() ? "" : ", ") + type(item);
      refuse("pre_tokenizer", fmt::format("Sequence of {}", kinds));
    }
    read_split(list[0]);
    read_byte_level(list[1], true);
  }

  void read_post_processor(const Json& node) {
    if (type(node) == "Sequence") {
      for (const Json& item : part(node, "processors")) read_post_processor(item);
    } else if (!node.is_null() && type(node) != "ByteLevel" && type(node) != "TemplateProcessing") {
      refuse("post_processor", type(node));
    }
  }

  void read_model() {
    const Json& model = part(root_, "model");
    const bool bpe = type(model) == "BPE" || (type(model) == "null" && model.contains("merges"));
    if (!bpe) refuse("model", type(model));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (part(model, key).is_string() && !part(model, key).get<std::string>().empty())
        refuse("model: BPE with", key);
    if (part(model, "dropout").is_number() && part(model, "dropout").get<double>() != 0)
      refuse("model: BPE with", "dropout");
    if (flag(model, "byte_fallback")) refuse("model: BPE with", "byte_fallback");
    if (!part(model, "vocab").is_object() || !part(model, "merges").is_array())
      fail_usage("{}: the model has no vocab or no merges: the file is damaged", path_);
    read_vocabulary(part(model, "vocab"), flag(model, "ignore_merges"));
    read_merges(part(model, "merges"));
  }

  void read_vocabulary(const Json& vocab, bool whole) {
    const std::vector<int32_t> bytes = character_bytes();
    byte_tokens.fill(-1);
    for (const auto& [token, number] : vocab.items()) {
      const int32_t id = read_id(number, token);
      ids_[token] = id;
      std::string meaning = bytes_of(token, bytes);
      if (meaning.size() == 1 && first_character(token.data()).bytes == token.size())
        byte_tokens[static_cast<unsigned char>(meaning[0])] = id;
      keep(id, meaning);
      if (whole) whole_words[std::move(meaning)] = id;
    }
    if (const auto missing = missing_byte(byte_tokens))
      fail_usage("{}: the vocabulary has no token for the byte {}; texts that hold it could not be encoded",
                 path_, *missing);
  }

  int32_t read_id(const Json& number, const std::string& token) const {
    if (!number.is_number_integer() || number.get<int64_t>() < 0 || number.get<int64_t>() >= 1 << 28)
      fail_usage("{}: the id of '{}' is {}; ids are whole numbers from 0 on", path_, token, number.dump());
    return number.get<int32_t>();
  }

  void keep(int32_t id, const std::string& meaning) {
    if (decoded.size() <= static_cast<size_t>(id)) decoded.resize(static_cast<size_t>(id) + 1);
    decoded[static_cast<size_t>(id)] = meaning;
  }

  void read_merges(const Json& list) {
    for (size_t rank = 0; rank < list.size(); ++rank) {
      std::string left, right;
      if (const Json& item = list[rank]; item.is_string()) {
        const std::string text = item.get<std::string>();
        const size_t blank = text.find(' ');
        left = text.substr(0, blank);
        if (blank != std::string::npos) right = text.substr(blank + 1);
      } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
        left = item[0].get<std::string>(), right = item[1].get<std::string>();
      }
      const auto a = ids_.find(left), b = ids_.find(right), both = ids_.find(left + right);
      if (a == ids_.end() || b == ids_.end() || both == ids_.end())
        fail_usage("{}: merge {}, {}, is of tokens that the vocabulary does not have", path_, rank,
                   list[rank].dump());
      merges.push_back({a->second, b->second, both->second});
    }
  }

  void read_added() {
    for (const Json& item : part(root_, "added_tokens")) {
      if (!item.is_object() || !part(item, "content").is_string())
        fail_usage("{}: an added token has no content: the file is damaged", path_);
      AddedToken t;
      t.content = item["content"].get<std::string>();
      t.id = read_id(part(item, "id"), t.content);
      t.single_word = flag(item, "single_word");
      t.lstrip = flag(item, "lstrip");
      t.rstrip = flag(item, "rstrip");
      t.special = flag(item, "special");
      t.normalized = flag(item, "normalized", !t.special);
      keep(t.id, bytes_of(t.content, character_bytes()));
      added.push_back(std::move(t));
    }
  }

  std::string path_;
  Json root_;
  std::unordered_map<std::string, int32_t> ids_;
};

// Tokens that are looked for in the text as it is, or in the normalized one.
AddedTokens added_tokens(const Reader& reader, bool normalized) {
  std::vector<AddedToken> list;
  for (const AddedToken& t : reader.added)
    if (t.normalized == normalized) {
      list.push_back(t);
      std::string storage;
      if (normalized && reader.nfc) list.back().content = std::string(normalize_nfc(t.content, storage));
    }
  return AddedTokens(std::move(list));
}

class ByteLevelTokenizer final : public Tokenizer {
 public:
  ByteLevelTokenizer(Reader reader, const std::string& path)
      : pattern_(reader.pattern),
        add_prefix_space_(reader.add_prefix_space),
        nfc_(reader.nfc),
        bpe_(reader.byte_tokens, reader.merges, std::move(reader.whole_words)),
        raw_(added_tokens(reader, false)),
        normalized_(added_tokens(reader, true)),
        decoded_(std::move(reader.decoded)) {
    cuts_at_lines_ = pattern_ != WordPattern::none && !add_prefix_space_ &&
                     std::none_of(reader.added.begin(), reader.added.end(), [](const AddedToken& t) {
                       return t.lstrip || t.rstrip || t.content.find_first_of("\r\n") != std::string::npos;
                     });
    find_files(path);
    find_end_of_text(reader.added, path);
    fingerprint_ = "tokenizer.json:" + content_fingerprint(MappedFile(path).bytes());
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> out;
    out.reserve(text.size() / 3 + 8);
    std::string valid;
    text = replace_invalid(text, valid);
    const Borrowed cache(*this);
    raw_.split(text, classes_, [&](std::string_view part, int32_t id) {
      if (id >= 0) {
        out.push_back(id);
        return;
      }
      std::string normal;
      if (nfc_) part = normalize_nfc(part, normal);
      normalized_.split(part, classes_, [&](std::string_view inner, int32_t inner_id) {
        if (inner_id >= 0)
          out.push_back(inner_id);
        else
          encode_text(inner, *cache.cache, out);
      });
    });
    return out;
  }

  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t t : tokens)
      if (t >= 0 && static_cast<size_t>(t) < decoded_.size()) text += decoded_[static_cast<size_t>(t)];
    return text;
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(decoded_.size()); }
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  const std::vector<std::string>& files() const override { return files_; }
  bool cuts_at_lines() const override { return cuts_at_lines_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  // A cache for the time of a call; calls at the same time have their own.
  struct Borrowed {
    explicit Borrowed(const ByteLevelTokenizer& owner) : from(owner) {
      const std::lock_guard lock(from.mutex_);
      if (from.caches_.empty()) {
        cache = std::make_unique<Bpe::Cache>();
      } else {
        cache = std::move(from.caches_.back());
        from.caches_.pop_back();
      }
    }
    ~Borrowed() {
      const std::lock_guard lock(from.mutex_);
      from.caches_.push_back(std::move(cache));
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    const ByteLevelTokenizer& from;
    std::unique_ptr<Bpe::Cache> cache;
  };

  void encode_text(std::string_view text, Bpe::Cache& cache, std::vector<int32_t>& out) const {
    std::string prefixed;
    if (add_prefix_space_ && text[0] != ' ') {
      prefixed = " ";
      prefixed += text;
      text = prefixed;
    }
    while (!text.empty()) {
      const size_t bytes = first_word(pattern_, classes_, text);
      bpe_.encode(text.substr(0, bytes), cache, out);
      text.remove_prefix(bytes);
    }
  }

  void find_files(const std::string& path) {
    const fs::path file = fs::absolute(path);
    files_.push_back(file.string());
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                             "vocab.json", "merges.txt", "chat_template.jinja"})
      if (const fs::path beside = file.parent_path() / name; fs::is_regular_file(beside))
        files_.push_back(beside.string());
  }

  void find_end_of_text(const std::vector<AddedToken>& added, const std::string& path) {
    std::vector<std::string> names;
    std::ifstream in(fs::path(path).parent_path() / "tokenizer_config.json");
    const Json config = in ? Json::parse(in, nullptr, false) : Json();
    if (config.is_object() && config.contains("eos_token")) {
      const Json& eos = config["eos_token"];
      if (eos.is_string()) names.push_back(eos.get<std::string>());
      if (eos.is_object() && eos.contains("content") && eos["content"].is_string())
        names.push_back(eos["content"].get<std::string>());
    }
    for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "</s>"})
      names.emplace_back(usual);
    for (const std::string& name : names) {
      const auto found =
          std::find_if(added.begin(), added.end(), [&](const AddedToken& t) { return t.content == name; });
      if (found == added.end()) continue;
      end_of_text_ = found->id;
      return;
    }
  }

  CharacterClasses classes_;
  WordPattern pattern_;
  bool add_prefix_space_, nfc_, cuts_at_lines_ = false;
  Bpe bpe_;
  AddedTokens raw_, normalized_;
  std::vector<std::string> decoded_;  // bytes by id
  std::vector<std::string> files_;
  std::optional<int32_t> end_of_text_;
  std::string fingerprint_;
  mutable std::mutex mutex_;  // guards caches_
  mutable std::vector<std::unique_ptr<Bpe::Cache>> caches_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_huggingface_tokenizer(const std::string& path) {
  Reader reader(path);
  reader.read();
  return std::make_unique<ByteLevelTokenizer>(std::move(reader), path);
}

}  // namespace triax
