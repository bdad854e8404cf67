#include "engine/html.h"

#include <fmt/format.h>

namespace triax {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else if (c == '\'')
      safe += "&#39;";
    else if (static_cast<unsigned char>(c) >= 32)
      safe += c;
    else if (c == '\n' || c == '\t')
      safe += ' ';
  }
  return safe;
}

HtmlTable::HtmlTable(std::initializer_list<std::string_view> headings) {
  for (std::string_view heading : headings) {
    const bool number = !heading.empty() && heading[0] == '>';
    if (number) heading.remove_prefix(1);
    numbers_.push_back(number);
    head_ += fmt::format("<th{}>{}</th>", number ? R"( class="n")" : "", escaped(heading));
  }
}

void HtmlTable::row(const std::vector<std::string>& cells, std::string_view style) {
  rows_ += style.empty() ? "<tr>" : fmt::format(R"(<tr class="{}">)", style);
  for (size_t i = 0; i < cells.size(); ++i)
    rows_ += fmt::format("<td{}>{}</td>", numbers_.at(i) ? R"( class="n")" : "", cells[i]);
  rows_ += "</tr>\n";
}

std::string HtmlTable::html() const {
  return fmt::format(
      "<div class=\"table\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
      head_, rows_);
}

}  // namespace triax
