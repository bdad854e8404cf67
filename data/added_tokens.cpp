#include "data/added_tokens.h"

#include <algorithm>

namespace triax {
namespace {

size_t spaces_at_start(std::string_view text, const CharacterClasses& classes) {
  size_t at = 0;
  while (at < text.size()) {
    const Character c = first_character(text.data() + at);
    if (!(classes[c.code] & class_space)) break;
    at += c.bytes;
  }
  return at;
}

size_t spaces_at_end(std::string_view text, const CharacterClasses& classes) {
  size_t count = 0;
  while (count < text.size()) {
    const Character c = last_character(text.substr(0, text.size() - count));
    if (!(classes[c.code] & class_space)) break;
    count += c.bytes;
  }
  return count;
}

bool touches_word(std::string_view before, std::string_view after, const CharacterClasses& classes) {
  return (!before.empty() && (classes[last_character(before).code] & class_word)) ||
         (!after.empty() && (classes[first_character(after.data()).code] & class_word));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& t) { return t.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (const AddedToken& t : tokens_) first_bytes_.set(static_cast<unsigned char>(t.content[0]));
}

const AddedToken* AddedTokens::longest_at(std::string_view rest) const {
  for (const AddedToken& t : tokens_)
    if (rest.starts_with(t.content)) return &t;
  return nullptr;
}

void AddedTokens::split(std::string_view text, const CharacterClasses& classes,
                        const std::function<void(std::string_view, int32_t)>& take) const {
  size_t taken = 0, at = 0;
  while (at < text.size()) {
    if (!first_bytes_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const AddedToken* found = longest_at(text.substr(at));
    if (!found) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found->content.size();
    at = end;
    if (found->single_word && touches_word(text.substr(0, begin), text.substr(end), classes)) continue;
    if (found->lstrip) begin = std::max(taken, begin - spaces_at_end(text.substr(0, begin), classes));
    if (found->rstrip) end += spaces_at_start(text.substr(end), classes);
    begin = std::max(begin, taken);
    if (begin > taken) take(text.substr(taken, begin - taken), -1);
    take(text.substr(begin, end - begin), found->id);
    taken = end;
    at = std::max(at, end);
  }
  if (taken < text.size()) take(text.substr(taken), -1);
}

}  // namespace triax
