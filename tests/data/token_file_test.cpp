#include "data/token_file.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/error.h"
#include "temporary_file.h"

namespace triax {
namespace {

using test::TemporaryFolder;

std::string refusal(const std::string& path) {
  try {
    open_tokens(path);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    return e.what();
  }
  return "accepted";
}

TEST(TokenFile, EveryByteIsItsToken) {
  std::string content;
  for (int i = 0; i < 256; ++i) content += static_cast<char>(i);
  const TemporaryFolder folder;
  const auto tokens = open_tokens(folder.write("all.txt", content));
  EXPECT_EQ(tokens->tokens(), 256);
  EXPECT_EQ(tokens->vocabulary(), 256);
  std::vector<int32_t> out(256);
  tokens->read(0, out);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], i);
  std::vector<int32_t> three(3);
  tokens->read(253, three);
  EXPECT_EQ(three, (std::vector<int32_t>{253, 254, 255}));
}

TEST(TokenFile, ReadingPastTheEndIsAFault) {
  const TemporaryFolder folder;
  const auto tokens = open_tokens(folder.write("a.txt", "abcd"));
  std::vector<int32_t> out(3);
  EXPECT_NO_THROW(tokens->read(1, out));
  EXPECT_THROW(tokens->read(2, out), Error);
  EXPECT_THROW(tokens->read(-1, out), Error);
  EXPECT_THROW(tokens->read(INT64_MAX, out), Error);
}

TEST(TokenFile, RefusalsNameFileAndReason) {
  const TemporaryFolder folder;
  EXPECT_NE(refusal(folder.path("missing.txt")).find("there is no data file"), std::string::npos);
  EXPECT_NE(refusal(folder.write("empty.txt", "")).find("is empty"), std::string::npos);
  EXPECT_NE(refusal(folder.write("a.json", "{}")).find("'.json'; supported are .txt"), std::string::npos);
  EXPECT_NE(refusal(folder.write("plain", "x")).find("extension ''"), std::string::npos);
  EXPECT_NE(refusal(folder.path("")).find("is a directory"), std::string::npos);
  std::filesystem::create_directory(folder.path("folder.txt"));
  EXPECT_NE(refusal(folder.path("folder.txt")).find("is a directory"), std::string::npos);
  EXPECT_NE(refusal(folder.path("missing.txt/a.txt")).find("there is no data file"), std::string::npos);
}

TEST(TokenFile, FingerprintFollowsTheContentAlone) {
  const TemporaryFolder folder;
  const auto of = [&](const std::string& name, const std::string& content) {
    return open_tokens(folder.write(name, content))->fingerprint();
  };
  const std::string text(1000, 'x');
  EXPECT_EQ(of("a.txt", text), of("b.txt", text));
  EXPECT_EQ(of("a.txt", text).substr(0, 11), "bytes:1000:");
  EXPECT_NE(of("a.txt", text), of("b.txt", text + "x"));
  std::set<std::string> all;
  for (size_t i = 0; i < text.size(); ++i) {
    std::vector<uint8_t> changed(text.begin(), text.end());
    changed[i] = 'y';
    all.insert(content_fingerprint(changed));
  }
  EXPECT_EQ(all.size(), text.size()) << "two different places of one change gave the same fingerprint";
}

TEST(HashBytes, TellsSwapsBitsAndTailsApart) {
  std::mt19937_64 random(7);
  std::vector<uint8_t> block(4096);
  for (auto& b : block) b = static_cast<uint8_t>(random());
  std::set<uint64_t> seen{hash_bytes(block)};
  size_t expected = 1;
  for (size_t bit = 0; bit < 8 * block.size(); bit += 5, ++expected) {
    block[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    seen.insert(hash_bytes(block));
    block[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  for (size_t a = 0; a < 128; ++a, ++expected) {  // neighbouring words swapped, lane by lane and row by row
    std::vector<uint8_t> swapped = block;
    std::swap_ranges(swapped.begin() + 8 * a, swapped.begin() + 8 * a + 8,
                     swapped.begin() + 8 * a + (a % 2 ? 8 : 64));
    seen.insert(hash_bytes(swapped));
  }
  const std::vector<uint8_t> zeros(300, 0);
  for (size_t n = 0; n <= zeros.size(); ++n, ++expected) seen.insert(hash_bytes({zeros.data(), n}));
  EXPECT_EQ(seen.size(), expected);
}

}  // namespace
}  // namespace triax
