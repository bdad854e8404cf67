#include "data/json_lines.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "data/json_text.h"
#include "temporary_file.h"

namespace triax {
namespace {

using test::TemporaryFolder;
using Json = nlohmann::json;

std::string refusal(const std::string& path, const std::string& key = "text") {
  try {
    open_json_lines(path, key);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
    return e.what();
  }
  return "accepted";
}

// Documents with all that JSON writes in its own way, some of them longer than a stride of the index.
std::vector<std::string> documents() {
  std::mt19937 random(3);
  const std::vector<std::string> parts{
      "plain ",   "\"quoted\"",       "back\\slash", "\n\t\r", std::string(1, '\0'),
      "\xc3\xa9", "\xf0\x9f\x98\x80", "\x7f/",       "\b\f"};
  std::vector<std::string> all;
  for (const int pieces : {1, 3, 30000, 2, 70000, 5}) {
    all.emplace_back();
    for (int i = 0; i < pieces; ++i) all.back() += parts[random() % parts.size()];
  }
  return all;
}

TEST(JsonLines, DocumentsAreBytesAndTokenOfTheEnd) {
  const TemporaryFolder folder;
  std::string file;
  std::vector<int32_t> expected;
  bool ascii = false;
  for (const std::string& document : documents()) {
    // nlohmann writes it, escaping everything beyond ASCII in every second line; other members stand around.
    ascii = !ascii;
    file += R"({"meta": {"a": [1, -2.5e3, true, null], "text": "not this"}, "text": )" +
            Json(document).dump(-1, ' ', ascii) + R"(, "z": ""})" + "\n" + (ascii ? "\r\n" : "");
    for (const char c : document) expected.push_back(static_cast<unsigned char>(c));
    expected.push_back(256);
  }
  file += R"({"text": ""})";  // no document, and no line end
  const auto source = open_json_lines(folder.write("a.jsonl", file), "text");
  EXPECT_EQ(source->vocabulary(), 257);
  ASSERT_EQ(source->tokens(), static_cast<int64_t>(expected.size()));
  std::vector<int32_t> all(expected.size());
  source->read(0, all);
  EXPECT_EQ(all, expected);
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    const size_t first = random() % expected.size(),
                 count = random() % std::min<size_t>(expected.size() - first, 200000);
    std::vector<int32_t> part(count);
    source->read(static_cast<int64_t>(first), part);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(first)))
        << first << ", " << count;
  }
  EXPECT_THROW(source->read(source->tokens() - 1, std::span(all).first(2)), Error);
}

TEST(JsonLines, DamagedLinesAreFoundWhenOpened) {
  const TemporaryFolder folder;
  const std::string sound = "{\"text\": \"a\"}\n\n";
  const std::vector<std::pair<std::string, std::string>> damaged{
      {R"({"text": "cut)", "the line is cut off"},
      {R"({"text": "a"} x)", "something follows"},
      {R"({"other": "a"})", "the object has no 'text'"},
      {R"({"text": 5})", "'text' is no text"},
      {R"(["text"])", "it is no JSON object"},
      {R"({"text": "a\q"})", "an unknown escape"},
      {R"({"text": "a\u12g4"})", "a \\u without four hexadecimal digits"},
      {"{\"text\": \"a\tb\"}", "a control character"},
      {R"({"text": "a", "n": 01x})", "'}' is missing"},
      {R"({"text": "a", "n": tru})", "no JSON value"}};
  for (const auto& [line, what] : damaged) {
    const std::string path = folder.write("a.jsonl", sound + line + "\n"), text = refusal(path);
    EXPECT_NE(text.find(path + ":3: " + what), std::string::npos) << text;
    EXPECT_EQ(Json::accept(line), what.find("'text'") != std::string::npos || what == "it is no JSON object")
        << line;
  }
  EXPECT_EQ(refusal(folder.write("b.jsonl", R"({"body": "a"})"), "body"), "accepted");
  EXPECT_NE(refusal(folder.write("c.jsonl", "\n\n")).find("has no text under 'text'"), std::string::npos);
}

TEST(JsonLines, HalfOfASurrogatePairIsTheReplacementCharacter) {
  EXPECT_EQ(unescape_json(R"(\ud83d\ude00|\ud83d|\ude00\u00e9)"),
            "\xf0\x9f\x98\x80|\xef\xbf\xbd|\xef\xbf\xbd\xc3\xa9");
}

}  // namespace
}  // namespace triax
