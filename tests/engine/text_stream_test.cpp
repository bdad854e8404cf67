#include "engine/text_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/sentencepiece_tokenizer.h"

namespace triax::test {
namespace {

const std::string text =
    "the fox  jumps over\n\xF0\x9F\x98\x80 na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC, 1234! "
    "the quick brown fox jumps over the lazy dog and the lazy dog looks at the quick brown fox, "
    "which has gone over the hill by then\n\n\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80";

bool whole_characters(const std::string& piece) {
  Utf8Stream stream;
  return stream.push(piece) == piece && stream.finish().empty();
}

// Wherever the prompt ends, the pieces are whole characters and make the rest of the text.
void expect_the_rest(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  ASSERT_EQ(tokenizer.decode(ids), text);
  for (size_t prompt = 0; prompt < ids.size(); ++prompt) {
    const std::vector<int32_t> before(ids.begin(), ids.begin() + static_cast<int64_t>(prompt));
    const std::string shown = tokenizer.decode(before);
    if (!whole_characters(shown) || text.rfind(shown, 0) != 0) continue;  // within a character
    TextStream stream(tokenizer, before);
    std::string rest;
    for (size_t i = prompt; i < ids.size(); ++i) {
      const std::string piece = stream.push(ids[i]);
      EXPECT_TRUE(whole_characters(piece)) << piece;
      rest += piece;
    }
    EXPECT_EQ(shown + rest + stream.finish(), text) << "after " << prompt << " tokens";
  }
}

TEST(TextStream, Bytes) {
  expect_the_rest(*open_tokenizer("bytes"));
}

TEST(TextStream, BytePairs) {
  expect_the_rest(*open_tokenizer(TRIAX_SOURCE_DIR "/tests/golden/tokenizers/llama3.json"));
}

// Leaves out the space that begins a text, and tells single bytes of a character as U+FFFD.
TEST(TextStream, SentencePiece) {
  const auto folder = std::filesystem::temp_directory_path() / ("triax-text-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream corpus(folder / "a.txt");
  for (int i = 0; i < 200; ++i)
    corpus << "the quick brown fox jumps over the lazy dog and the lazy dog looks at the quick fox " << i
           << "\n";
  corpus.close();
  SentencePieceTraining training;
  training.inputs = {(folder / "a.txt").string()};
  training.output = (folder / "t.model").string();
  training.vocab_size = 330;
  train_sentencepiece(training);
  expect_the_rest(*open_tokenizer(training.output));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace triax::test
