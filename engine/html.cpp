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
    const char kind = heading.empty() ? ' ' : heading[0];
    if (kind == '>' || kind == '~') heading.remove_prefix(1);
    styles_.emplace_back(kind == '>' ? R"( class="n")" : kind == '~' ? R"( class="long")" : "");
    head_ += fmt::format("<th{}>{}</th>", styles_.back(), escaped(heading));
  }
}

void HtmlTable::row(const std::vector<std::string>& cells, std::string_view style) {
  rows_ += style.empty() ? "<tr>" : fmt::format(R"(<tr class="{}">)", style);
  for (size_t i = 0; i < cells.size(); ++i) rows_ += fmt::format("<td{}>{}</td>", styles_.at(i), cells[i]);
  rows_ += "</tr>\n";
}

std::string HtmlTable::html() const {
  return fmt::format(
      "<div class=\"table\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
      head_, rows_);
}

}  // namespace triax
