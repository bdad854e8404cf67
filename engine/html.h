#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace triax {

/// Text as it may stand in HTML, XML and their attributes; control characters go.
std::string escaped(std::string_view text);

/// A table: cells are HTML already; columns of numbers are set to the right. It scrolls by itself where the
/// page is too narrow.
class HtmlTable {
 public:
  /// A heading that begins with '>' is that of a column of numbers, one with '~' of one of long texts, which
  /// are folded.
  explicit HtmlTable(std::initializer_list<std::string_view> headings);
  /// `style`: a class of the row, or nothing.
  void row(const std::vector<std::string>& cells, std::string_view style = "");
  bool empty() const { return rows_.empty(); }
  std::string html() const;

 private:
  std::vector<std::string> styles_;  // of the columns
  std::string head_, rows_;
};

}  // namespace triax
