#include "engine/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/rng.h"
#include "engine/utf8_stream.h"

namespace triax::test {
namespace {

const std::vector<float> logits{1.0f, -0.5f, 2.0f, 0.3f, 2.0f, -3.0f, 1.7f, -INFINITY, 0.9f, -1.2f};

/// By the definition: probabilities of all tokens, 0 where one can't be drawn.
std::map<int32_t, double> exact(double temperature, size_t top_k, double top_p) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < logits.size(); ++i) order.push_back(static_cast<int32_t>(i));
  std::stable_sort(order.begin(), order.end(), [](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (top_k && top_k < order.size()) order.resize(top_k);
  double sum = 0;
  for (const int32_t t : order) sum += std::exp(logits[t] / temperature);
  std::map<int32_t, double> p;
  double before = 0;
  for (const int32_t t : order) {
    if (before >= top_p && !p.empty()) break;
    before += p[t] = std::exp(logits[t] / temperature) / sum;
  }
  for (auto& [t, x] : p) x /= before;
  return p;
}

struct Case {
  double temperature;
  int64_t top_k;
  double top_p;
};

// Pearson's chi-square of 40,000 draws against the exact probabilities: beyond its 1 - 1e-6 quantile
// (Wilson-Hilferty) fewer than one seed in a million lies, and the seed is fixed.
TEST(Sampling, DrawsTheExactDistribution) {
  int number = 0;
  for (const Case& c : {Case{1, 0, 1}, Case{0.7, 0, 1}, Case{1.5, 4, 1}, Case{1, 0, 0.8}, Case{0.9, 6, 0.7},
                        Case{2, 1, 1}, Case{1, 0, 0.01}}) {
    const auto truth = exact(c.temperature, static_cast<size_t>(c.top_k), c.top_p);
    const auto list = candidates(logits, {c.temperature, c.top_k, c.top_p});
    double sum = 0;
    for (const Candidate& candidate : list) {
      if (candidate.probability == 0) continue;
      ASSERT_TRUE(truth.count(candidate.token)) << number << ": " << candidate.token;
      EXPECT_NEAR(candidate.probability, truth.at(candidate.token), 1e-12);
      sum += candidate.probability;
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    const RandomStream stream(42, "case " + std::to_string(number++));
    const int draws = 40000;
    std::map<int32_t, int> count;
    for (int i = 0; i < draws; ++i)
      ++count[draw(list, static_cast<double>(stream.bits64(static_cast<uint64_t>(i)) >> 11) * 0x1p-53)];
    double chi = 0;
    int freedom = -1;
    for (const auto& [token, p] : truth) {
      if (p == 0) continue;
      chi += std::pow(count[token] - draws * p, 2) / (draws * p);
      ++freedom;
    }
    for (const auto& [token, n] : count) EXPECT_TRUE(truth.count(token) && truth.at(token) > 0) << token;
    if (freedom == 0) {
      EXPECT_EQ(chi, 0);
      continue;
    }
    const double k = freedom, quantile = k * std::pow(1 - 2 / (9 * k) + 4.753 * std::sqrt(2 / (9 * k)), 3);
    EXPECT_LT(chi, quantile) << "case " << number << ", " << freedom << " degrees of freedom";
  }
}

TEST(Sampling, GreedyTakesTheFirstOfTheLikeliest) {
  const auto list = candidates(logits, {0, 0, 1});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].token, 2);  // as likely as 4
  EXPECT_EQ(draw(list, 0.999999), 2);
}

TEST(Sampling, SaysThatAModelIsBroken) {
  try {
    candidates(std::vector<float>{0, NAN, 1}, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("token 1 is not a number"), std::string::npos) << e.what();
  }
}

// Whatever the pieces, the text is the same, and no piece ends within a character.
TEST(Utf8, HoldsBackTheBeginOfACharacter) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // 1 to 4 bytes a character
  for (size_t step = 1; step <= text.size(); ++step) {
    Utf8Stream stream;
    std::string out;
    for (size_t at = 0; at < text.size(); at += step) {
      const std::string piece = stream.push(text.substr(at, step));
      EXPECT_EQ(Utf8Stream().push(piece), piece);
      out += piece;
    }
    EXPECT_EQ(out + stream.finish(), text) << step;
  }
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.push("\x80"), "\xF0\x9F\x98\x80");
}

// The examples of the Unicode Standard, tables 3-8 to 3-11.
TEST(Utf8, ReplacesEachMaximalPart) {
  const auto replaced = [](const std::string& bytes) {
    std::string out;
    Utf8Stream stream;
    for (const char c : bytes) out += stream.push({&c, 1});
    out += stream.finish();
    std::string marks;  // U+FFFD as ?
    for (size_t i = 0; i < out.size(); ++i)
      if (out.compare(i, 3, "\xEF\xBF\xBD") == 0)
        marks += '?', i += 2;
      else
        marks += out[i];
    return marks;
  };
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                     "A"),
            "????????A");
  EXPECT_EQ(replaced("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                     "A"),
            "????????A");
  EXPECT_EQ(replaced("\xF4\x91\x92\x93\xFF"
                     "A\x80\xBF"
                     "B"),
            "?????A??B");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                     "A"),
            "????A");
  EXPECT_EQ(replaced("x\xE2\x82"), "x?");
}

}  // namespace
}  // namespace triax::test
