#include "data/tokenize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/error.h"
#include "data/glob.h"
#include "data/sampler.h"
#include "data/tokenizer.h"
#include "support/python.h"
#include "temporary_file.h"

namespace triax {
namespace {

using test::TemporaryFolder;

const std::string golden = TRIAX_SOURCE_DIR "/tests/golden/tokenizers/";

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<int32_t> read_all(const std::string& path) {
  const auto source = open_tokens(path);
  std::vector<int32_t> out(static_cast<size_t>(source->tokens()));
  source->read(0, out);
  return out;
}

bool finish(const TokenizeOptions& options) {
  return tokenize(options, [](const TokenizeProgress&) { return true; });
}

std::string refusal(const TokenizeOptions& options) {
  try {
    finish(options);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
    return e.what();
  }
  return "accepted";
}

// Prose with all sorts of line ends, some megabytes of it.
std::string prose(size_t bytes) {
  const std::vector<std::string> words{"the ",
                                       "Word",
                                       "s.\n",
                                       "x\r\n",
                                       "\n\n",
                                       " \n",
                                       "it's ",
                                       "12345",
                                       "\xc3\xa9t\xc3\xa9",
                                       "e\xcc\x81\n",
                                       "\"\n",
                                       "\n\xe3\x80\x80",
                                       "\xe3\x80\x82\n",
                                       "\xff\n",
                                       "<|endoftext|>",
                                       "  ",
                                       "\n'd",
                                       "(a)\n",
                                       "\xf0\x9f\x98\x80\n\xcc\x81"};
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) text += words[random() % words.size()];
  return text;
}

// The golden tokenizers without the added tokens that take white space along.
std::string plain_tokenizer(const TemporaryFolder& folder, const std::string& name) {
  std::string file = content(golden + name + ".json");
  for (const std::string key : {"\"lstrip\":true", "\"rstrip\":true"})
    for (size_t at = 0; (at = file.find(key, at)) != file.npos;)
      file.replace(at, key.size(), key.substr(0, 9) + "false");
  return folder.write(name + ".json", file);
}

TEST(Tokenize, PiecesOfATextGiveTheTokensOfTheWhole) {
  const TemporaryFolder folder;
  TokenizeOptions o;
  const std::string text = prose(3'500'000);
  o.inputs = {folder.write("a.txt", text)};
  o.output = folder.path("a");
  o.overwrite = true;
  for (const std::string name : {"gpt2", "llama3", "qwen2"}) {
    o.tokenizer = plain_tokenizer(folder, name);
    const auto tokenizer = open_tokenizer(o.tokenizer);
    ASSERT_TRUE(tokenizer->cuts_at_lines());
    ASSERT_TRUE(finish(o));
    std::vector<int32_t> expected = tokenizer->encode(text);
    expected.push_back(*tokenizer->end_of_text());
    EXPECT_EQ(read_all(o.output), expected) << name;
  }
  EXPECT_FALSE(open_tokenizer(golden + "gpt2.json")->cuts_at_lines()) << "white space goes with some tokens";
}

TEST(Tokenize, DocumentsEndWithTheEndOfTextInEveryFormatAndWidth) {
  const TemporaryFolder folder;
  TokenizeOptions o;
  o.inputs = {folder.write("a.jsonl", "{\"body\": \"ab\\n\"}\n{\"body\": \"\"}\n{\"body\": \"c\"}\n"),
              folder.write("b.txt", "de")};
  o.json_key = "body";
  o.output = folder.path("out");
  ASSERT_TRUE(finish(o));
  const std::vector<int32_t> expected{'a', 'b', '\n', 256, 'c', 256, 'd', 'e', 256};
  EXPECT_EQ(read_all(o.output), expected);
  // Index: magic, version, uint16, three sequences, three documents and the end.
  const std::string index = content(o.output + ".idx");
  const auto number = [&](size_t at, size_t bytes) {
    int64_t value = 0;
    std::memcpy(&value, index.data() + at, bytes);
    return value;
  };
  ASSERT_EQ(index.size(), 34u + 3 * 4 + 3 * 8 + 4 * 8);
  EXPECT_EQ(number(17, 1), 8);
  EXPECT_EQ(number(34, 4), 4);
  EXPECT_EQ(number(34 + 12 + 16, 8), 12);
  EXPECT_EQ(number(index.size() - 8, 8), 3);

  EXPECT_NE(refusal(o).find("is there already"), std::string::npos);
  o.overwrite = true;
  o.format = TokenFormat::llmc;
  ASSERT_TRUE(finish(o));
  EXPECT_EQ(read_all(o.output + ".bin"), expected);
  EXPECT_FALSE(std::filesystem::exists(o.output + ".idx")) << "of the pair that was replaced";
  o.end_of_text = false;
  ASSERT_TRUE(finish(o));
  EXPECT_EQ(read_all(o.output + ".bin"), (std::vector<int32_t>{'a', 'b', '\n', 'c', 'd', 'e'}));
}

TEST(Tokenize, WideTokensGoIntoBothFormats) {
  const TemporaryFolder folder;
  const std::vector<int32_t> tokens{1, 70000, 128255};
  for (const auto& [format, path] :
       {std::pair{TokenFormat::megatron, "m"}, std::pair{TokenFormat::llmc, "l.bin"}}) {
    const std::string prefix = folder.path(std::string(path).substr(0, 1));
    TokenWriter writer(prefix, format, 128256, {});
    EXPECT_EQ(writer.width(), 4);
    writer.append(tokens);
    writer.end_document();
    EXPECT_THROW(writer.append(std::vector<int32_t>{128256}), Error);
    EXPECT_THROW(TokenWriter(prefix, format, 128256, {}), Error) << "two writers";
    writer.finish();
    TokenWriter::publish(prefix, format);
    EXPECT_EQ(read_all(folder.path(path)), tokens);
  }
}

TEST(Tokenize, StoppedAnywhereAndRepeatedGivesTheSameFilesWithAnyWorkers) {
  const TemporaryFolder folder;
  TokenizeOptions o;
  std::string lines;
  for (int i = 0; i < 60000; ++i)
    lines += "{\"text\": \"line " + std::to_string(i * 7919) + " of some words\"}\n";
  o.inputs = {folder.write("a.txt", prose(2'500'000)), folder.write("b.jsonl", lines)};
  o.tokenizer = golden + "llama3.json";
  o.output = folder.path("whole");
  o.workers = 2;
  ASSERT_TRUE(finish(o));
  o.output = folder.path("parts");
  o.workers = 1;
  o.save_seconds = 0;
  int runs = 1, calls = 0;
  // Every run is stopped after its first wave; the state of the one before is what it goes on from.
  while (!tokenize(o, [&](const TokenizeProgress& p) {
    EXPECT_EQ(p.first_bytes > 0, runs > 1);
    return ++calls % 2 == 0;
  }))
    ++runs;
  EXPECT_GE(runs, 2);
  for (const char* end : {".bin", ".idx"})
    EXPECT_TRUE(content(folder.path("whole") + end) == content(folder.path("parts") + end)) << end;
  for (const char* end : {".bin.part", ".idx.part", ".documents.part", ".state.json"})
    EXPECT_FALSE(std::filesystem::exists(folder.path("parts") + end)) << end;

  // Another tokenizer begins anew, whatever is left of the first.
  o.overwrite = true;
  EXPECT_FALSE(tokenize(o, [](const TokenizeProgress&) { return false; }));
  o.tokenizer = golden + "qwen2.json";
  ASSERT_TRUE(tokenize(o, [](const TokenizeProgress& p) { return p.first_bytes == 0; }));
}

// Stops after the first wave, and gives what the repeated run begins with: bytes that were done before it.
int64_t stopped_and_repeated(TokenizeOptions o, const std::function<void(TokenizeOptions&)>& between) {
  o.workers = 1;
  o.overwrite = true;
  EXPECT_FALSE(tokenize(o, [](const TokenizeProgress&) { return false; }));
  between(o);
  int64_t first = -1;
  EXPECT_TRUE(tokenize(o, [&](const TokenizeProgress& p) {
    first = p.first_bytes;
    return true;
  }));
  return first;
}

TEST(Tokenize, BeginsAnewWhereTheStateIsOfNoUse) {
  const TemporaryFolder folder;
  TokenizeOptions o;
  o.inputs = {folder.write("a.txt", prose(5'000'000))};
  o.output = folder.path("out");
  ASSERT_TRUE(finish(o));
  const std::string whole = content(o.output + ".bin");
  const auto first_after = [&](const std::function<void(TokenizeOptions&)>& between) {
    const int64_t first = stopped_and_repeated(o, between);
    EXPECT_TRUE(content(o.output + ".bin") == whole);
    return first;
  };
  EXPECT_GT(first_after([](TokenizeOptions&) {}), 0);
  for (const char* part : {".bin.part", ".documents.part"})
    EXPECT_EQ(first_after([&](TokenizeOptions&) { std::filesystem::remove(o.output + part); }), 0) << part;
  for (const char* state : {"{", "[]", "{\"identity\": 3}"})
    EXPECT_EQ(first_after([&](TokenizeOptions&) { folder.write("out.state.json", state); }), 0) << state;
  for (const std::string key : {"at", "input", "line", "written", "tokens", "open_document", "complete"}) {
    const auto without = [&](TokenizeOptions&) {
      std::string state = content(o.output + ".state.json");
      state.replace(state.find('"' + key + '"'), key.size() + 2, "\"other\"");
      folder.write("out.state.json", state);
    };
    EXPECT_EQ(first_after(without), 0) << key;
  }
}

TEST(Tokenize, AShorterPartIsRefusedWithWhatHelps) {
  const TemporaryFolder folder;
  TokenizeOptions o;
  o.inputs = {folder.write("a.txt", prose(5'000'000))};
  o.output = folder.path("out");
  const int64_t first = stopped_and_repeated(o, [](TokenizeOptions& again) {
    std::filesystem::resize_file(again.output + ".bin.part", 10);
    EXPECT_NE(refusal(again).find("remove it, and the same command begins anew"), std::string::npos)
        << refusal(again);
    std::filesystem::remove(again.output + ".bin.part");
  });
  EXPECT_EQ(first, 0);
}

TEST(Tokenize, AnotherEndOfTextBeginsAnew) {
  const TemporaryFolder folder;
  TokenizeOptions o;
  o.inputs = {folder.write("a.txt", prose(5'000'000))};
  o.tokenizer = plain_tokenizer(folder, "gpt2");
  o.output = folder.path("out");
  folder.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_GT(stopped_and_repeated(o, [](TokenizeOptions&) {}), 0);
  EXPECT_EQ(
      stopped_and_repeated(
          o, [&](TokenizeOptions&) { folder.write("tokenizer_config.json", R"({"eos_token": "<|eot|>"})"); }),
      0);
  EXPECT_EQ(read_all(o.output).back(), open_tokenizer(o.tokenizer)->end_of_text());
}

TEST(Tokenize, WrongInputsAreNamed) {
  const TemporaryFolder folder;
  TokenizeOptions o;
  o.output = folder.path("out");
  EXPECT_NE(refusal(o).find("no input"), std::string::npos);
  const auto of = [&](const std::string& input) {
    o.inputs = {input};
    return refusal(o);
  };
  EXPECT_NE(of(folder.path("none.txt")).find("none.txt"), std::string::npos);
  EXPECT_NE(of(folder.write("e.txt", "")).find("e.txt is empty"), std::string::npos);
  EXPECT_NE(of(folder.write("a.gz", "x")).find("a .gz file is no plain text"), std::string::npos);
  const std::string bad = folder.write("b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n");
  EXPECT_NE(of(bad).find(bad + ":2: the line is cut off"), std::string::npos) << of(bad);
  EXPECT_NE(of(folder.write("c.jsonl", "\n")).find("holds no text"), std::string::npos);
  for (const char* end : {".bin", ".bin.part", ".documents.part", ".state.json"})
    EXPECT_FALSE(std::filesystem::exists(o.output + end)) << end;
}

TEST(Glob, ExpandsSortedAndWeighsByBytes) {
  const TemporaryFolder folder;
  folder.write("b.txt", std::string(300, 'b'));
  folder.write("a.txt", std::string(100, 'a'));
  folder.write("p.bin", "xx");
  folder.write("p.idx", "xx");
  folder.write("odd[1].txt", "x");
  EXPECT_FALSE(is_glob(folder.path("odd[1].txt"))) << "a file of that name";
  EXPECT_EQ(expand_glob(folder.path("p.*")), std::vector<std::string>{folder.path("p.bin")});
  std::vector<DataSource> sources{{folder.path("?.txt"), 2.0}, {folder.path("p.bin"), 1.0}};
  EXPECT_TRUE(expand_globs(sources, "data.train").empty());
  const std::vector<DataSource> expected{
      {folder.path("a.txt"), 0.5}, {folder.path("b.txt"), 1.5}, {folder.path("p.bin"), 1.0}};
  EXPECT_EQ(sources, expected);
  sources = {{folder.path("*.none"), 1.0}};
  EXPECT_EQ(expand_globs(sources, "data.train"),
            std::vector<std::string>{"data.train[0].path: " + folder.path("*.none") +
                                     ": no file fits this pattern"});
}

// Megatron-LM's own IndexedDataset reads what we write.
TEST(FullTokenize, MegatronsOwnReaderReadsOurPairs) {
  std::string why;
  const std::string python = test::python_with("megatron-core torch numpy", &why);
  if (python.empty()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  for (const int64_t vocabulary : {1000, 100000}) {
    TokenWriter writer(folder.path("a"), TokenFormat::megatron, vocabulary, {});
    for (int32_t document = 1; document <= 5; ++document) {
      writer.append(
          std::vector<int32_t>(static_cast<size_t>(document), static_cast<int32_t>(vocabulary) - document));
      writer.end_document();
    }
    writer.finish();
    TokenWriter::publish(folder.path("a"), TokenFormat::megatron);
    const std::string script = folder.write("read.py", R"(
import sys, numpy
from megatron.core.datasets.indexed_dataset import IndexedDataset
prefix, vocabulary = sys.argv[1], int(sys.argv[2])
data = IndexedDataset(prefix)
assert len(data) == 5 and list(data.document_indices) == [0, 1, 2, 3, 4, 5], data.document_indices
assert data.index.dtype == (numpy.uint16 if vocabulary < 65500 else numpy.int32), data.index.dtype
for i in range(5):
    assert data[i].tolist() == [vocabulary - i - 1] * (i + 1), data[i]
assert data.get(4, offset=1, length=2).tolist() == [vocabulary - 5] * 2
)");
    EXPECT_EQ(
        std::system(
            (python + " " + script + " " + folder.path("a") + " " + std::to_string(vocabulary)).c_str()),
        0);
  }
}

}  // namespace
}  // namespace triax
