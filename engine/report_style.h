#pragma once

namespace triax {

/// The page's look: one column on a phone, two on a desk, dark where the reader's system is, black on white
/// in print.
extern const char* const report_style;
/// Shows the values under the pointer. The page is whole without it.
extern const char* const report_script;

}  // namespace triax
