#pragma once

#include <cctype>
#include <string>
#include <vector>

namespace triax::test {

/// What keeps a page from being well-formed XML (every tag closed in its order, attributes quoted, no bare
/// "<" or "&"), with the place; empty when it is.
inline std::string not_well_formed(const std::string& page) {
  std::vector<std::string> open;
  const auto at = [&](const std::string& what, size_t place) {
    return what + " at ..." + page.substr(place > 40 ? place - 40 : 0, 100);
  };
  for (size_t i = 0; i < page.size();) {
    if (page[i] == '&') {
      const size_t end = page.find(';', i);
      const std::string name = end == std::string::npos ? "" : page.substr(i + 1, end - i - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot" && name[0] != '#')
        return at("a bare &", i);
      i = end + 1;
      continue;
    }
    if (page[i] != '<') {
      ++i;
      continue;
    }
    if (page.compare(i, 2, "<!") == 0) {
      i = page.find('>', i) + 1;
      continue;
    }
    const bool closes = page[i + 1] == '/';
    size_t j = i + (closes ? 2 : 1);
    const size_t begin = j;
    while (j < page.size() && (std::isalnum(static_cast<unsigned char>(page[j])) || page[j] == '-')) ++j;
    const std::string name = page.substr(begin, j - begin);
    if (name.empty()) return at("a bare <", i);
    bool empty = false;
    while (j < page.size() && page[j] != '>') {
      if (page[j] == '<') return at("< in a tag", j);
      if (page[j] == '=') {
        const char quote = page[j + 1];
        if (quote != '"' && quote != '\'') return at("an attribute without quotes", j);
        j = page.find(quote, j + 2);
        if (j == std::string::npos) return at("an open attribute", i);
      }
      empty = page[j] == '/';
      ++j;
    }
    if (j >= page.size()) return at("an open tag", i);
    if (closes) {
      if (open.empty() || open.back() != name) return at("</" + name + "> closes another tag", i);
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
    }
    i = j + 1;
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

}  // namespace triax::test
