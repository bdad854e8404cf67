#include "data/text_pieces.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "data/descriptor.h"

namespace triax {
namespace {

constexpr size_t piece_bytes = size_t{1} << 20, longest_piece = size_t{1} << 28;

int64_t size_of_input(const std::string& path) {
  // Formats whose bytes are no text: encoding them would be a mistake that nobody notices.
  for (const char* packed :
       {".bin", ".idx", ".gz", ".zst", ".xz", ".bz2", ".zip", ".parquet", ".json", ".npy"})
    if (std::filesystem::path(path).extension() == packed)
      fail_usage("{}: a {} file is no plain text; give text files, or .jsonl with an object on each line",
                 path, packed);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.fd < 0 || fstat(file.fd, &status) != 0)
    fail_usage("can't read {}: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail_usage("{} is not a plain file", path);
  if (status.st_size == 0) fail_usage("{} is empty", path);
  return status.st_size;
}

std::string read_part(const std::string& path, int64_t offset, size_t bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) fail("can't open {}: {}", path, std::strerror(errno));
  std::string text(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = pread(file.fd, text.data() + done, bytes - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("can't read {}: {}", path, std::strerror(errno));
    if (n == 0) fail("{} has become shorter while it was read", path);
    done += static_cast<size_t>(n);
  }
  return text;
}

}  // namespace

bool is_json_lines(const std::string& path) {
  return std::filesystem::path(path).extension() == ".jsonl";
}

TextPieces::TextPieces(std::vector<std::string> inputs, Cut cut, const TextPosition& from)
    : inputs_(std::move(inputs)), cut_(cut), position_(from) {
  for (const std::string& input : inputs_) {
    sizes_.push_back(size_of_input(input));
    total_ += sizes_.back();
  }
}

int64_t TextPieces::bytes_before() const {
  int64_t bytes = position_.offset;
  for (int64_t i = 0; i < position_.input; ++i) bytes += sizes_[static_cast<size_t>(i)];
  return bytes;
}

// Where `text` can be cut, the last place; 0: nowhere. A word of the patterns never goes on over white space,
// so that a line end between two visible characters can stay with what is before it, and white space that
// begins with a line end with what is behind it where a letter or a digit is before it (signs take line ends
// along).
size_t TextPieces::cut_place(const std::string& text, bool lines) const {
  if (lines) return text.rfind('\n') + 1;  // npos + 1 is 0
  if (cut_ == Cut::anywhere) return text.size();
  if (cut_ == Cut::never) return 0;
  const auto ascii = [&](size_t i, int mask) {
    const auto c = static_cast<unsigned char>(text[i]);
    return c < 0x80 && (classes_[c] & mask);
  };
  const auto visible_at = [&](size_t i) {  // broken UTF-8 does not count
    const size_t bytes = std::min<size_t>(4, text.size() - i);
    const std::string_view some(text.data() + i, bytes);
    return valid_utf8(some) > 0 && !(classes_[first_character(some.data()).code] & class_space);
  };
  const auto visible_before = [&](size_t i) {
    size_t begin = i - 1;
    while (begin > 0 && i - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    const std::string_view some(text.data() + begin, i - begin);
    return valid_utf8(some) == some.size() && !(classes_[first_character(some.data()).code] & class_space);
  };
  for (size_t i = text.size() - 1; i > 0; --i) {
    if (text[i] != '\n' && text[i] != '\r') continue;
    if (text[i] == '\n' && i + 4 < text.size() && visible_at(i + 1) && visible_before(i)) return i + 1;
    if (ascii(i - 1, class_letter | class_number)) return i;
  }
  return 0;
}

std::optional<TextPiece> TextPieces::next() {
  if (position_.input == static_cast<int64_t>(inputs_.size())) return std::nullopt;
  const auto i = static_cast<size_t>(position_.input);
  const bool lines = is_json_lines(inputs_[i]);
  const auto left = static_cast<size_t>(sizes_[i] - position_.offset);
  TextPiece piece;
  for (size_t bytes = piece_bytes;; bytes *= 2) {
    if (bytes >= left) {
      if (left > longest_piece)
        fail_usage(
            "{}: {} bytes from byte {} on have no place where they can be cut without changing tokens; at "
            "most {} are "
            "encoded at once: give the file more line ends, or make documents of it (.jsonl)",
            inputs_[i], left, position_.offset, longest_piece);
      piece.text = read_part(inputs_[i], position_.offset, left);
      piece.ends_document = true;
      break;
    }
    if (bytes > longest_piece)
      fail_usage("{}: the {} bytes from byte {} on have no line end; at most {} are encoded at once",
                 inputs_[i], bytes, position_.offset, longest_piece);
    if (!lines && cut_ == Cut::never) continue;
    piece.text = read_part(inputs_[i], position_.offset, bytes);
    if (const size_t place = cut_place(piece.text, lines)) {
      piece.text.resize(place);
      break;
    }
  }
  piece.input = inputs_[i];
  piece.lines = lines;
  piece.first_line = position_.line;
  position_.offset += static_cast<int64_t>(piece.text.size());
  if (lines) position_.line += std::count(piece.text.begin(), piece.text.end(), '\n');
  if (piece.ends_document) position_ = {position_.input + 1, 0, 1};
  return piece;
}

}  // namespace triax
