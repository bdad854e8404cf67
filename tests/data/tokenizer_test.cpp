#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "data/sentencepiece_tokenizer.h"
#include "data/unicode.h"
#include "support/python.h"
#include "temporary_file.h"

namespace triax {
namespace {

using test::TemporaryFolder;
using Json = nlohmann::json;

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Parts with their lengths before them, in units of `width` bytes.
std::vector<std::string> framed(const std::string& path, size_t width = 1) {
  const std::string bytes = content(path);
  std::vector<std::string> parts;
  for (size_t at = 0; at + 4 <= bytes.size();) {
    uint32_t count = 0;
    std::memcpy(&count, bytes.data() + at, 4);
    parts.push_back(bytes.substr(at + 4, count * width));
    at += 4 + count * width;
  }
  return parts;
}

std::vector<int32_t> numbers(const std::string& bytes) {
  std::vector<int32_t> ids(bytes.size() / 4);
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

std::string whole(std::string_view text) {
  std::string storage;
  return std::string(replace_invalid(text, storage));
}

// Line by line against what the tokenizers package made of the same text.
void expect_the_packages_ids(const std::string& folder, size_t at_least, bool decoding) {
  const std::vector<std::string> lines = framed(folder + "/text.bin");
  ASSERT_GE(lines.size(), at_least);
  for (const std::string name : {"gpt2", "gpt2-prefix", "llama3", "qwen2"}) {
    const auto tokenizer = open_tokenizer(folder + "/" + name + ".json");
    const auto ids = framed(folder + "/" + name + ".ids", 4), text = framed(folder + "/" + name + ".text");
    ASSERT_EQ(ids.size(), lines.size());
    int different = 0;
    for (size_t i = 0; i < lines.size() && different < 5; ++i) {
      const std::vector<int32_t> mine = tokenizer->encode(lines[i]), theirs = numbers(ids[i]);
      different += mine != theirs;
      EXPECT_EQ(mine, theirs) << name << ", line " << i << ": " << whole(lines[i]);
      if (decoding) {
        EXPECT_EQ(whole(tokenizer->decode(theirs)), text[i]) << name << ", line " << i;
      }
    }
  }
}

std::string refusal(const std::string& spec) {
  try {
    open_tokenizer(spec);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
    return e.what();
  }
  return "accepted";
}

const std::string golden = TRIAX_SOURCE_DIR "/tests/golden/tokenizers";

TEST(ByteTokenizer, TokensAreBytesAndEndOfTextIsTheNextOne) {
  const auto tokenizer = open_tokenizer("bytes");
  const std::string text("a\0\xff\n", 4);
  const std::vector<int32_t> tokens = tokenizer->encode(text);
  EXPECT_EQ(tokens, (std::vector<int32_t>{97, 0, 255, 10}));
  EXPECT_EQ(tokenizer->decode(tokens), text);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{98, 256, -1, 99}), "bc");
  EXPECT_TRUE(tokenizer->files().empty());
}

TEST(HuggingFaceTokenizer, IdsAreThoseOfTheTokenizersPackage) {
  expect_the_packages_ids(golden, 100, false);
}

TEST(HuggingFaceTokenizer, ThreadsMayShareOne) {
  const auto tokenizer = open_tokenizer(golden + "/llama3.json");
  const auto lines = framed(golden + "/text.bin"), ids = framed(golden + "/llama3.ids", 4);
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (size_t i = 0; i < lines.size(); ++i) count += tokenizer->encode(lines[i]) != numbers(ids[i]);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(HuggingFaceTokenizer, ALongWordIsMergedAsAShortOneIs) {
  // a, aa, aaaa, ...: merged from the left; and in n log n, or this would take minutes.
  Json file = Json::parse(content(golden + "/gpt2.json"));
  Json& model = file["model"];
  std::string token = "a";
  model["merges"] = Json::array();
  for (int id = 1000; id < 1004; ++id) {
    model["merges"].push_back({token, token});
    token += token;
    model["vocab"][token] = id;
  }
  const TemporaryFolder folder;
  const auto tokenizer = open_tokenizer(folder.write("tokenizer.json", file.dump()));
  const size_t length = 1'000'007;
  const std::vector<int32_t> ids = tokenizer->encode(std::string(length, 'a'));
  ASSERT_EQ(ids.size(), length / 16 + 3);
  EXPECT_EQ(ids[0], 1003);
  EXPECT_EQ(std::vector<int32_t>(ids.end() - 3, ids.end()),
            (std::vector<int32_t>{1001, 1000, model["vocab"]["a"].get<int32_t>()}));
}

TEST(HuggingFaceTokenizer, EndOfTextAndFiles) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", content(golden + "/gpt2.json"));
  const auto by_name = open_tokenizer(folder.path(""));
  EXPECT_EQ(by_name->end_of_text(), by_name->encode("<|endoftext|>").at(0));
  EXPECT_EQ(by_name->vocab_size(), *by_name->end_of_text() + 8);
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<|eot|>"}})");
  const auto told = open_tokenizer(folder.path("tokenizer.json"));
  EXPECT_EQ(told->end_of_text(), told->encode("<|eot|>").at(0));
  EXPECT_EQ(told->files(),
            (std::vector<std::string>{folder.path("tokenizer.json"), folder.path("tokenizer_config.json")}));
  EXPECT_EQ(told->fingerprint(), by_name->fingerprint());
}

TEST(HuggingFaceTokenizer, WhatIsNotUnderstoodIsRefusedByName) {
  const TemporaryFolder folder;
  const Json sound = Json::parse(content(golden + "/llama3.json"));
  const auto with = [&](const std::string& pointer, const Json& value) {
    Json file = sound;
    file[Json::json_pointer(pointer)] = value;
    return refusal(folder.write("tokenizer.json", file.dump()));
  };
  ASSERT_EQ(with("/version", "1.0"), "accepted");
  const std::vector<std::tuple<std::string, Json, std::string>> refused{
      {"/model/type", "WordPiece", "model WordPiece"},
      {"/model/type", "Unigram", "model Unigram"},
      {"/model/byte_fallback", true, "byte_fallback"},
      {"/model/dropout", 0.1, "dropout"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/normalizer", {{"type", "NFKC"}}, "normalizer NFKC"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "pre_tokenizer Metaspace"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+", "pattern \\w+"},
      {"/pre_tokenizer/pretokenizers/0/type", "Digits", "Sequence of Digits, ByteLevel"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext", "behavior MergedWithNext"},
      {"/post_processor", {{"type", "BertProcessing"}}, "post_processor BertProcessing"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder WordPiece"},
      {"/truncation", {{"max_length", 4}}, "truncation"},
      {"/model/merges/0", "no such", "merge 0"},
      {"/model/vocab/a", -1, "'a' is -1"}};
  for (const auto& [pointer, value, text] : refused)
    EXPECT_NE(with(pointer, value).find(text), std::string::npos) << with(pointer, value);
  Json without = sound;
  without["model"]["vocab"].erase("a");
  EXPECT_NE(refusal(folder.write("tokenizer.json", without.dump())).find("no token for the byte 97"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("tokenizer.json", sound.dump().substr(0, 1000))).find("damaged or cut off"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("other.json", "{}")).find("no tokenizer.json"), std::string::npos);
  EXPECT_NE(refusal(folder.path("missing.json")).find("there is no tokenizer"), std::string::npos);
  EXPECT_NE(refusal(folder.write("a.txt", "x")).find("extension '.txt'"), std::string::npos);
}

TEST(SentencePieceTokenizer, TrainsAndEncodesWhatItDecodes) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "the quick brown fox " + std::to_string(i * i) + " jumps over the lazy dog\n";
  SentencePieceTraining training;
  training.inputs = {folder.write("a.txt", text)};
  training.output = folder.path("t.model");
  training.vocab_size = 330;
  train_sentencepiece(training);
  const auto tokenizer = open_tokenizer(training.output);
  EXPECT_EQ(tokenizer->vocab_size(), 330);
  const std::string sample = "the fox  jumps\n\xf0\x9f\x98\x80 na\xc3\xafve";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(sample)), sample);
  EXPECT_LT(tokenizer->encode("the quick brown fox").size(), 8u);
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  training.vocab_size = 100000;
  EXPECT_THROW(train_sentencepiece(training), Error);
  EXPECT_EQ(open_tokenizer(training.output)->fingerprint(), tokenizer->fingerprint()) << "left as it was";
  EXPECT_NE(refusal(folder.write("b.model", "nonsense")).find("no SentencePiece model"), std::string::npos);
}

// Whatever the installed utf8proc knows.
TEST(CharacterClasses, KnowLettersDigitsAndMarksOfUnicode16) {
  const CharacterClasses classes;
  for (const uint32_t letter : {0x2EBF0, 0x2EE5D, 0x13460, 0x143FA, 0x105C0, 0x1C89, 0x113D3, 0x1E5F0})
    EXPECT_EQ(classes[letter], class_letter | class_word) << std::hex << letter;
  for (const uint32_t digit : {0x10D40, 0x116E3, 0x1CCF0, 0x1E5FA})
    EXPECT_EQ(classes[digit], class_number | class_word) << std::hex << digit;
  for (const uint32_t mark : {0x897, 0x10EFC, 0x113B8, 0x1E5EF})
    EXPECT_EQ(classes[mark], class_word) << std::hex << mark;
  for (const uint32_t other : {0x10D66, 0x1138A, 0x143FB, 0x1CC00, 0x1CCFA, 0x1E5FF, 0x2EE5E, 0x10FFFF})
    EXPECT_EQ(classes[other], 0) << std::hex << other;
}

// Marks of Unicode 15: what the package's tables, those of Unicode 9, do not know combines with nothing.
TEST(Normalization, LeavesNewerMarksWhereTheyAre) {
  for (const uint32_t mark :
       {0x10EFD, 0x10EFF, 0x11F41, 0x11F42, 0x1E08F, 0x1E4EC, 0x1E4EF, 0x897, 0x1E5EE}) {
    std::string text = "a", storage;
    append_utf8(mark, text);
    const std::string before = text + "\xCC\xB4";  // an overlay, which goes before all other marks
    EXPECT_EQ(normalize_nfc(before, storage), before) << std::hex << mark;
  }
}

// 100,000 lines of mixed scripts, emoji, white space, marks, contractions, added tokens and broken UTF-8, and
// every character of Unicode.
TEST(FullTokenizers, EqualThePackageLineByLine) {
  std::string why;
  const std::string python = test::python_with("tokenizers", &why);
  if (python.empty()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  const std::string command =
      python + " " TRIAX_SOURCE_DIR "/tests/data/tokenizers_reference.py " + folder.path("") + " 100000";
  ASSERT_EQ(std::system(command.c_str()), 0);
  expect_the_packages_ids(folder.path(""), 100000, true);
}

}  // namespace
}  // namespace triax
