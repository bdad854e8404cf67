// Files are laid out here as their publishers' writers lay them out (the sources are named in
// data/packed_tokens.h), not by code of ours.
#include "data/packed_tokens.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "data/sampler.h"
#include "temporary_file.h"

namespace triax {
namespace {

using test::TemporaryFolder;

template <class... T>
std::string packed(T... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

template <class T>
std::string elements(const std::vector<int64_t>& tokens) {
  std::string bytes;
  for (const int64_t t : tokens) bytes += packed(static_cast<T>(t));
  return bytes;
}

std::vector<int32_t> read_all(const TokenSource& source) {
  std::vector<int32_t> out(static_cast<size_t>(source.tokens()));
  source.read(0, out);
  return out;
}

struct Sequence {
  int32_t length;
  int64_t offset;
};

// IndexedDatasetBuilder.finalize() of Megatron-LM: documents holds the first sequence of each, and the end.
std::string mmap_index(uint8_t type, const std::vector<Sequence>& sequences) {
  const std::vector<int64_t> documents{0, static_cast<int64_t>(sequences.size())};
  std::string bytes("MMIDIDX\0\0", 9);
  bytes += packed(uint64_t{1}, type, uint64_t{sequences.size()}, uint64_t{documents.size()});
  for (const Sequence& s : sequences) bytes += packed(s.length);
  for (const Sequence& s : sequences) bytes += packed(s.offset);
  return bytes + elements<int64_t>(documents);
}

std::string refusal(const std::string& path) {
  try {
    open_tokens(path);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage) << e.what();
    return e.what();
  }
  return "accepted";
}

const std::vector<int64_t> tokens{5, 6, 7, 50256, 1, 2, 3, 4, 50256};

TEST(MegatronTokens, SequencesFollowOneAnother) {
  const TemporaryFolder folder;
  folder.write("a.bin", elements<uint16_t>(tokens));
  folder.write("a.idx", mmap_index(8, {{4, 0}, {0, 8}, {5, 8}}));
  for (const char* name : {"a.bin", "a.idx", "a"}) {
    const auto source = open_tokens(folder.path(name));
    EXPECT_EQ(read_all(*source), (std::vector<int32_t>{5, 6, 7, 50256, 1, 2, 3, 4, 50256})) << name;
    EXPECT_EQ(source->vocabulary(), 0);
  }
}

TEST(MegatronTokens, EveryElementType) {
  const std::vector<std::pair<uint8_t, std::string>> types{
      {1, elements<uint8_t>({1, 200, 3})},    {2, elements<int8_t>({1, 100, 3})},
      {3, elements<int16_t>({1, 30000, 3})},  {4, elements<int32_t>({1, 100000, 3})},
      {5, elements<int64_t>({1, 100000, 3})}, {8, elements<uint16_t>({1, 65535, 3})}};
  const std::vector<int32_t> middle{200, 100, 30000, 100000, 100000, 65535};
  for (size_t i = 0; i < types.size(); ++i) {
    const TemporaryFolder folder;
    folder.write("a.bin", types[i].second);
    folder.write("a.idx", mmap_index(types[i].first, {{3, 0}}));
    EXPECT_EQ(read_all(*open_tokens(folder.path("a"))), (std::vector<int32_t>{1, middle[i], 3}));
  }
}

TEST(MegatronTokens, TheIndexDecidesTheOrder) {
  const TemporaryFolder folder;
  folder.write("a.bin", elements<int32_t>({10, 11, 12, 13, 14, 15}));
  folder.write("a.idx", mmap_index(4, {{2, 16}, {3, 0}, {1, 12}}));
  const auto source = open_tokens(folder.path("a"));
  EXPECT_EQ(read_all(*source), (std::vector<int32_t>{14, 15, 10, 11, 12, 13}));
  std::vector<int32_t> part(3);
  source->read(1, part);  // across the seam
  EXPECT_EQ(part, (std::vector<int32_t>{15, 10, 11}));
  EXPECT_THROW(source->read(4, part), Error);
}

TEST(MegatronTokens, MultimodalIndexAndTheOlderKind) {
  const TemporaryFolder folder;
  folder.write("m.bin", elements<uint16_t>({1, 2, 3}));
  folder.write("m.idx", mmap_index(8, {{1, 0}, {2, 2}}) + std::string(2, '\0'));
  EXPECT_EQ(read_all(*open_tokens(folder.path("m"))), (std::vector<int32_t>{1, 2, 3}));

  folder.write("t.bin", elements<int32_t>({7, 8, 9}));
  std::string index("TNTIDX\0\0", 8);
  index += packed(uint64_t{1}, uint64_t{4}, uint64_t{4}, uint64_t{2}, uint64_t{2}, uint64_t{2});
  index += elements<int64_t>({0, 1, 2}) + elements<int64_t>({0, 2, 3}) + elements<int64_t>({2, 1}) +
           elements<int64_t>({0, 2});
  folder.write("t.idx", index);
  EXPECT_EQ(read_all(*open_tokens(folder.path("t"))), (std::vector<int32_t>{7, 8, 9}));
}

TEST(MegatronTokens, DamageIsFoundWhenOpened) {
  const TemporaryFolder folder;
  const std::string data = elements<uint16_t>(tokens), index = mmap_index(8, {{4, 0}, {5, 8}});
  const auto opened = [&](const std::string& bin, const std::string& idx) {
    folder.write("a.bin", bin);
    folder.write("a.idx", idx);
    return refusal(folder.path("a"));
  };
  ASSERT_EQ(opened(data, index), "accepted");
  EXPECT_NE(opened(data.substr(0, 16), index).find("says that sequence 1 has 5 elements"), std::string::npos);
  EXPECT_NE(opened(data + "xx", index).find("knows of 18"), std::string::npos);
  for (const size_t size : {size_t{3}, size_t{12}, size_t{25}, index.size() - 17, index.size() - 1})
    EXPECT_NE(opened(data, index.substr(0, size)).find("a.idx"), std::string::npos) << size;
  EXPECT_NE(opened(data, index + "x").find("behind its documents"), std::string::npos);
  EXPECT_NE(opened(data, "x" + index).find("no index of Megatron"), std::string::npos);
  EXPECT_NE(opened(data, mmap_index(7, {{4, 0}})).find("of type 7"), std::string::npos);
  EXPECT_NE(opened(data, mmap_index(8, {{-1, 0}})).find("-1 elements"), std::string::npos);
  EXPECT_NE(opened(data, mmap_index(8, {{1, -2}})).find("from byte -2"), std::string::npos);
  EXPECT_NE(opened(data, mmap_index(8, {})).find("no tokens"), std::string::npos);
  // Of three documents, the last of which ends with the last of two sequences, one is nonsense.
  const auto with_documents = [&](const std::vector<int64_t>& documents) {
    std::string changed = index.substr(0, index.size() - 2 * 8);
    const auto count = static_cast<uint64_t>(documents.size());
    std::memcpy(changed.data() + 26, &count, 8);
    return opened(data, changed + elements<int64_t>(documents));
  };
  EXPECT_EQ(with_documents({0, 1, 1, 2}), "accepted");
  EXPECT_NE(with_documents({0, 1, 3}).find("document 2 begins with sequence 3, where one from 1 to 2"),
            std::string::npos)
      << with_documents({0, 1, 3});
  EXPECT_NE(with_documents({0, 2, 1}).find("document 2 begins with sequence 1"), std::string::npos);
  EXPECT_NE(with_documents({-1, 2}).find("document 0 begins with sequence -1"), std::string::npos);
  std::string huge = index;
  std::memset(huge.data() + 18, 0xff, 8);  // number of sequences
  EXPECT_NE(opened(data, huge).find("in the middle of its sequence lengths"), std::string::npos);
  folder.write("b.idx", index);
  EXPECT_NE(refusal(folder.path("b.idx")).find("there is no data file"), std::string::npos);
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& content) {
  std::vector<int64_t> header(256, 0);
  header[0] = magic, header[1] = version, header[2] = count;
  return elements<int32_t>(header) + content;
}

TEST(LlmcTokens, BothVersions) {
  const TemporaryFolder folder;
  EXPECT_EQ(
      read_all(*open_tokens(folder.write("g.bin", llmc(20240520, 1, 3, elements<uint16_t>({1, 50256, 2}))))),
      (std::vector<int32_t>{1, 50256, 2}));
  EXPECT_EQ(
      read_all(*open_tokens(folder.write("l.bin", llmc(20240801, 7, 3, elements<uint32_t>({1, 128001, 2}))))),
      (std::vector<int32_t>{1, 128001, 2}));
}

TEST(LlmcTokens, DamageIsFoundWhenOpened) {
  const TemporaryFolder folder;
  const std::string content = elements<uint16_t>({1, 2, 3});
  EXPECT_NE(refusal(folder.write("a.bin", llmc(20240520, 1, 4, content))).find("says 4 tokens"),
            std::string::npos);
  EXPECT_NE(refusal(folder.write("b.bin", llmc(20240520, 1, 3, content + "x"))).find("1031 bytes"),
            std::string::npos);
  EXPECT_NE(
      refusal(folder.write("c.bin", llmc(20240520, 2, 3, content))).find("magic 20240520 and version 2"),
      std::string::npos);
  EXPECT_NE(refusal(folder.write("d.bin", "short")).find("less than the 1024"), std::string::npos);
  EXPECT_NE(refusal(folder.write("e.bin", llmc(20240520, 1, -1, content))).find("-1 tokens"),
            std::string::npos);
}

TEST(PackedTokens, FingerprintsTellContentAndFormat) {
  const TemporaryFolder folder;
  const std::string content = elements<uint16_t>({1, 2, 3});
  const std::string a = open_tokens(folder.write("a.bin", llmc(20240520, 1, 3, content)))->fingerprint();
  EXPECT_EQ(a, open_tokens(folder.write("b.bin", llmc(20240520, 1, 3, content)))->fingerprint());
  folder.write("c.bin", content);
  folder.write("c.idx", mmap_index(8, {{3, 0}}));
  const std::string c = open_tokens(folder.path("c"))->fingerprint();
  folder.write("c.idx", mmap_index(8, {{1, 4}, {2, 0}}));  // the same tokens in another order
  EXPECT_NE(c, open_tokens(folder.path("c"))->fingerprint());
}

// Only reading tells what tokens a file has: the one that is too large is named when it comes.
TEST(PackedTokens, TokensOutsideOfTheVocabularyAreNamed) {
  const TemporaryFolder folder;
  const auto path = folder.write("a.bin", llmc(20240801, 7, 5, elements<uint32_t>({1, 2, 3, 99, 4})));
  const SampleOrder order = open_samples({{path, 1.0}}, 2, 1, EpochOrder::sequential, 99);
  int32_t sample[3];
  EXPECT_NO_THROW(order.read_sample(0, sample));
  try {
    order.read_sample(1, sample);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("token 3 of " + path + " is 99"), std::string::npos) << e.what();
  }
  // Beyond int32: not taken for a small number.
  const auto large = folder.write("b.bin", llmc(20240801, 7, 3, elements<uint32_t>({1, 4294967295, 4})));
  EXPECT_THROW(open_samples({{large, 1.0}}, 2, 1, EpochOrder::sequential, 99).read_sample(0, sample), Error);
}

}  // namespace
}  // namespace triax
