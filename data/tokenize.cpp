#include "data/tokenize.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/thread_pool.h"
#include "data/json_text.h"
#include "data/text_pieces.h"
#include "data/tokenizer.h"

namespace triax {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// Tokens of a piece, and where in them documents end.
struct Encoded {
  std::vector<int32_t> tokens;
  std::vector<size_t> ends;
};

// What must be the same for a repeated run to go on.
Json identity(const TokenizeOptions& o, const Tokenizer& tokenizer) {
  Json inputs = Json::array();
  for (const std::string& input : o.inputs) {
    struct stat status {};
    if (stat(input.c_str(), &status) != 0) fail_usage("can't read {}: no such file", input);
    inputs.push_back({{"path", fs::absolute(input).lexically_normal().string()},
                      {"bytes", status.st_size},
                      {"seconds", status.st_mtim.tv_sec},
                      {"nanoseconds", status.st_mtim.tv_nsec}});
  }
  return {{"version", 1},
          {"inputs", inputs},
          {"tokenizer", tokenizer.fingerprint()},
          {"format", o.format == TokenFormat::megatron ? "megatron" : "llmc"},
          {"json_key", o.json_key},
          // Which token it is: tokenizer_config.json may name another one of the same vocabulary.
          {"end_of_text", o.end_of_text ? Json(*tokenizer.end_of_text()) : Json()}};
}

class Job {
 public:
  explicit Job(const TokenizeOptions& options) : o_(options), tokenizer_(open_tokenizer(options.tokenizer)) {
    if (o_.inputs.empty()) fail_usage("there is no input; give at least one text file");
    if (o_.output.empty()) fail_usage("--output: the prefix of what is written is empty");
    if (o_.end_of_text && !tokenizer_->end_of_text())
      fail_usage("the tokenizer {} has no end of text to put behind each document; give --no-append-eot",
                 o_.tokenizer);
    vocabulary_ = tokenizer_->vocab_size();
    if (o_.end_of_text) vocabulary_ = std::max<int64_t>(vocabulary_, *tokenizer_->end_of_text() + 1);
    identity_ = identity(o_, *tokenizer_);
    read_state();
    pieces_ = std::make_unique<TextPieces>(o_.inputs, cut(), from_);
    first_bytes_ = pieces_->bytes_before();
    if (complete_) return;
    if (!resumed_) {
      refuse_existing();
      std::error_code error;
      fs::remove(state_path(), error);  // it tells of parts that are written anew
    }
    writer_ = std::make_unique<TokenWriter>(o_.output, o_.format, vocabulary_, written_);
  }

  bool run(const std::function<bool(const TokenizeProgress&)>& progress) {
    if (!complete_) {
      try {
        if (!encode_all(progress)) return false;
      } catch (const Error& error) {
        // What has to be changed makes it another work, which would not go on from these parts.
        if (error.kind() == ErrorKind::usage) discard();
        throw;
      }
      writer_->finish();
      written_ = writer_->written();
      save(true);
      writer_.reset();
    }
    TokenWriter::publish(o_.output, o_.format);
    std::error_code error;
    fs::remove(state_path(), error);
    progress({pieces_->total_bytes(), pieces_->total_bytes(), first_bytes_, written_});
    return true;
  }

 private:
  std::string state_path() const { return o_.output + ".state.json"; }

  TextPieces::Cut cut() const {
    if (is_bytes(o_.tokenizer)) return TextPieces::Cut::anywhere;
    return tokenizer_->cuts_at_lines() ? TextPieces::Cut::at_lines : TextPieces::Cut::never;
  }

  void refuse_existing() const {
    std::error_code error;
    std::vector<std::string> files{o_.output + ".bin"};
    if (o_.format == TokenFormat::megatron) files.push_back(o_.output + ".idx");
    for (const std::string& file : files)
      if (!o_.overwrite && fs::exists(file, error))
        fail_usage("{} is there already; give another --output, or --overwrite to replace it", file);
    for (const std::string& input : o_.inputs)
      for (const std::string& file : files)
        if (fs::equivalent(input, file, error)) fail_usage("{} is an input and would be overwritten", file);
  }

  // A state of the same work is gone on from; any other, a damaged one, or one whose parts are gone, is none.
  void read_state() {
    std::ifstream in(state_path());
    const Json state = in ? Json::parse(in, nullptr, false) : Json();
    if (!state.is_object() || state.value("identity", Json()) != identity_) return;
    try {
      const Json &at = state.at("at"), &written = state.at("written");
      const TextPosition from{at.at("input"), at.at("offset"), at.at("line")};
      const WrittenTokens before{written.at("tokens"), written.at("documents"), written.at("open_document")};
      const bool complete = state.at("complete");
      const std::string gone = TokenWriter::missing_part(o_.output, o_.format, complete);
      if (!gone.empty()) {
        std::fputs(
            fmt::format("tokenize: {} tells of a run that was stopped, but {} is gone: beginning anew\n",
                        state_path(), gone)
                .c_str(),
            stderr);
        return;
      }
      from_ = from;
      written_ = before;
      complete_ = complete;
      resumed_ = true;
    } catch (const Json::exception&) {
      return;
    }
  }

  void save(bool complete) const {
    const TextPosition& at = position_;
    const Json state{{"identity", identity_},
                     {"at", {{"input", at.input}, {"offset", at.offset}, {"line", at.line}}},
                     {"written",
                      {{"tokens", written_.tokens},
                       {"documents", written_.documents},
                       {"open_document", written_.open_document}}},
                     {"complete", complete}};
    replace_text(state_path(), state.dump(1) + "\n");
  }

  bool encode_all(const std::function<bool(const TokenizeProgress&)>& progress) {
    position_ = from_;
    ThreadPool pool(o_.workers);
    auto saved = Clock::now();
    for (;;) {
      std::vector<TextPiece> wave;
      for (int i = 0; i < 4 * o_.workers; ++i) {
        auto piece = pieces_->next();
        if (!piece) break;
        wave.push_back(std::move(*piece));
      }
      if (wave.empty()) break;
      std::vector<Encoded> encoded(wave.size());
      pool.run(static_cast<int64_t>(wave.size()), [&](int64_t i) {
        const auto k = static_cast<size_t>(i);
        encoded[k] = encode(wave[k]);
      });
      for (const Encoded& e : encoded) write(e);
      position_ = pieces_->position();
      const bool go_on =
          progress({pieces_->bytes_before(), pieces_->total_bytes(), first_bytes_, writer_->written()});
      if (!go_on || std::chrono::duration<double>(Clock::now() - saved).count() >= o_.save_seconds) {
        written_ = writer_->sync();
        save(false);
        saved = Clock::now();
      }
      if (!go_on) return false;
    }
    if (writer_->written().tokens == 0) fail_usage("the input holds no text");
    return true;
  }

  void discard() {
    writer_.reset();
    TokenWriter::discard(o_.output);
    std::error_code error;
    fs::remove(state_path(), error);
  }

  void write(const Encoded& e) {
    size_t begin = 0;
    for (const size_t end : e.ends) {
      writer_->append({e.tokens.data() + begin, end - begin});
      writer_->end_document();
      begin = end;
    }
    writer_->append({e.tokens.data() + begin, e.tokens.size() - begin});
  }

  Encoded encode(const TextPiece& piece) const {
    Encoded out;
    if (!piece.lines) {
      add(piece.text, out);
      if (piece.ends_document) end(out);
      return out;
    }
    int64_t number = piece.first_line;
    for (size_t at = 0; at < piece.text.size(); ++number) {
      const size_t stop = std::min(piece.text.find('\n', at), piece.text.size());
      const auto line = std::string_view(piece.text).substr(at, stop - at);
      at = stop + 1;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      std::string_view raw;
      if (const std::string wrong = find_json_text(line, o_.json_key, &raw); !wrong.empty())
        fail_usage("{}:{}: {}", piece.input, number, wrong);
      if (raw.empty()) continue;
      add(unescape_json(raw), out);
      end(out);
    }
    return out;
  }
  void add(std::string_view text, Encoded& out) const {
    const std::vector<int32_t> tokens = tokenizer_->encode(text);
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
  }
  void end(Encoded& out) const {
    if (o_.end_of_text) out.tokens.push_back(*tokenizer_->end_of_text());
    out.ends.push_back(out.tokens.size());
  }

  const TokenizeOptions& o_;
  std::unique_ptr<Tokenizer> tokenizer_;
  int64_t vocabulary_ = 0;
  Json identity_;
  TextPosition from_, position_;
  WrittenTokens written_;
  int64_t first_bytes_ = 0;  // done by runs before this one
  bool complete_ = false, resumed_ = false;
  std::unique_ptr<TextPieces> pieces_;
  std::unique_ptr<TokenWriter> writer_;
};

}  // namespace

bool tokenize(const TokenizeOptions& options, const std::function<bool(const TokenizeProgress&)>& progress) {
  return Job(options).run(progress);
}

}  // namespace triax
