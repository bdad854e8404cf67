// The safetensors format: what is written reads back, and nothing that is damaged is taken.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "checkpoint/safetensors_folder.h"
#include "core/error.h"
#include "support/hf_folder.h"

namespace triax::test {
namespace {

namespace fs = std::filesystem;

// A file by hand: the header as it stands, then so many bytes.
std::string file_of(const std::string& header, size_t bytes) {
  const uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + std::string(bytes, '\x01');
}

std::string why_refused(const fs::path& path) {
  try {
    const SafeTensorsFile file(path);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(SafeTensors, WhatIsWrittenReadsBack) {
  const ScratchFolder folder;
  for (StoredType type : {StoredType::f32, StoredType::bf16, StoredType::f16}) {
    const fs::path path = folder.path() / (std::string(name_of(type)) + ".safetensors");
    write_tensors(path, {{"b", {3, 5}}, {"empty", {0, 4}}, {"a", {7}}, {"scalar", {}}}, type);
    const SafeTensorsFile file(path);
    EXPECT_EQ(file.metadata().at("format"), "pt");
    ASSERT_EQ(file.tensors().size(), 4U);
    EXPECT_EQ(file.find("b")->begin % 8, 0);
    EXPECT_EQ(file.find("b")->shape, (std::vector<int64_t>{3, 5}));
    EXPECT_EQ(file.find("c"), nullptr);
    float part[4];
    file.read(*file.find("b"), 9, 4, part);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(part[i], test_value("b", 9 + i));
    EXPECT_THROW(file.read(*file.find("b"), 12, 4, part), Error);
  }
}

TEST(SafeTensors, EveryTruncationIsFound) {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "model.safetensors";
  write_tensors(path, {{"x", {2, 3}}, {"y", {4}}});
  const std::string whole = content_of(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_content(path, whole.substr(0, bytes));
    EXPECT_NE(why_refused(path).find(path.string()), std::string::npos) << bytes << " bytes were taken";
  }
  write_content(path, whole + "z");
  EXPECT_NE(why_refused(path).find("1 bytes follow its last tensor"), std::string::npos);
  write_content(path, whole);
  EXPECT_EQ(why_refused(path), "");
}

TEST(SafeTensors, DamagedHeadersAreRefusedWithFileAndTensor) {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "model.safetensors";
  const auto entry = [](const std::string& name, const std::string& dtype, const std::string& shape,
                        int begin, int end) {
    return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const std::string x = entry("x", "F32", "[2]", 0, 8);
  struct Case {
    std::string header;
    size_t bytes;
    const char* word;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"{" + x + "," + entry("y", "F32", "[1]", 4, 8) + "}", 8, "y begins at byte"},
           {"{" + x + "," + entry("y", "F32", "[1]", 12, 16) + "}", 16, "no tensor has the bytes"},
           {"{" + x + "," + x + "}", 8, "names x twice"},
           {"{" + entry("x", "F32", "[3]", 0, 8) + "}", 8, "can't take the bytes"},
           {"{" + entry("x", "F31", "[2]", 0, 8) + "}", 8, "unknown type F31"},
           {"{" + entry("x", "F32", "[-2]", 0, 8) + "}", 8, "where a whole number belongs"},
           {"{" + entry("x", "F32", "[2.0]", 0, 8) + "}", 8, "where a whole number belongs"},
           {"{" + entry("x", "F32", "[4611686018427387904,4]", 0, 8) + "}", 8, "can't take the bytes"},
           {"{" + entry("x", "F32", "[2]", 8, 0) + "}", 8, "can't take the bytes"},
           {R"({"x":{"dtype":"F32","shape":[2]}})", 8, "of x is not"},
           {R"({"__metadata__":{"format":1}})", 0, "metadata format is no text"},
           {"[]", 0, "no JSON object"},
           {"{" + x, 8, "not JSON"}}) {
    write_content(path, file_of(c.header, c.bytes));
    const std::string why = why_refused(path);
    EXPECT_NE(why.find(c.word), std::string::npos) << c.header << "\n" << why;
    EXPECT_NE(why.find(path.string()), std::string::npos) << why;
  }
  write_content(path, file_of("{" + x + "}", 8));
  EXPECT_EQ(why_refused(path), "");
  write_content(path, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  EXPECT_NE(why_refused(path).find("header would have"), std::string::npos);
}

TEST(SafeTensors, OtherTypesAreSkippedAndNotRead) {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "model.safetensors";
  write_content(path, file_of(R"({"mask":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", 8));
  const SafeTensorsFile file(path);
  float x[8];
  try {
    file.read(*file.find("mask"), 0, 8, x);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("mask has the type BOOL"), std::string::npos) << e.what();
  }
}

TEST(SafeTensorsFolder, IndexAndFilesAgreeOrAreRefused) {
  const ScratchFolder folder;
  const fs::path& dir = folder.path();
  EXPECT_THROW(SafeTensorsFolder{dir}, Error);
  write_tensors(dir / "one.safetensors", {{"x", {2}}});
  write_tensors(dir / "two.safetensors", {{"y", {3}}, {"z", {1}}});
  const auto index = [&](const std::string& map) {
    write_content(dir / safetensors_index, R"({"metadata":{},"weight_map":)" + map + "}");
    try {
      const SafeTensorsFolder open(dir);
      float y[3];
      open.read("y", 0, 3, y);
      EXPECT_EQ(y[2], test_value("y", 2));
      return std::string(open.find("x") && !open.find("w") ? "read" : "wrong");
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  const auto refused = [&](const std::string& map, const char* word) {
    const std::string why = index(map);
    EXPECT_NE(why.find(word), std::string::npos) << map << ": " << why;
  };
  EXPECT_EQ(index(R"({"x":"one.safetensors","y":"two.safetensors","z":"two.safetensors"})"), "read");
  refused(R"({"x":"one.safetensors","y":"two.safetensors"})", "does not list z");
  refused(R"({"x":"two.safetensors","y":"two.safetensors","z":"two.safetensors"})", "does not hold it");
  refused(R"({"x":"three.safetensors"})", "three.safetensors, which is missing");
  refused(R"({"x":"../one.safetensors"})", "no file beside it");
  refused("[1]", "damaged");
  write_tensors(dir / "two.safetensors", {{"x", {2}}, {"y", {3}}, {"z", {1}}});
  refused(R"({"x":"one.safetensors","y":"two.safetensors","z":"two.safetensors"})", "x is both in");
}

// Every fp16 there is, by its definition, and back.
TEST(StoredType, HalvesAreExactAndRoundToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float value;
    decode(StoredType::f16, &half, 1, &value);
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double truth =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent < 31) {
      ASSERT_EQ(value, half & 0x8000 ? -truth : truth) << bits;
    }
    uint16_t back = 0;
    encode(StoredType::f16, &value, 1, &back);
    if (std::isnan(value))
      ASSERT_TRUE((back & 0x7c00) == 0x7c00 && (back & 1023)) << bits;
    else
      ASSERT_EQ(back, half);
    if (exponent >= 30 || (half & 0x8000)) continue;
    // Halfway to the next: the even one; a little more or less: the nearer one.
    const auto next = static_cast<uint16_t>(half + 1);
    float above;
    decode(StoredType::f16, &next, 1, &above);
    const float middle = (value + above) / 2;
    for (const auto& [x, want] :
         {std::pair{middle, half & 1 ? next : half}, std::pair{std::nextafter(middle, 0.0f), half},
          std::pair{std::nextafter(middle, 1e6f), next}}) {
      encode(StoredType::f16, &x, 1, &back);
      ASSERT_EQ(back, want) << x;
    }
  }
  const float large[] = {65504.0f, 65519.9f, 65520.0f, INFINITY};
  uint16_t stored[4];
  EXPECT_EQ(encode(StoredType::f16, large, 4, stored), 2);
  EXPECT_EQ(stored[1], 0x7bff);
  const float finite[] = {1.0f, 3.4e38f};
  EXPECT_EQ(encode(StoredType::bf16, finite, 2, stored), 1);
}

TEST(SafeTensors, ANumberThatTheTypeCantHoldIsNamed) {
  const ScratchFolder folder;
  SafeTensorsWriter file(folder.path() / "x", {{"gate", {2}}}, StoredType::f16, {});
  const float values[] = {1, 7e4f};
  try {
    file.append(values, 2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("gate holds 70000"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace triax::test
