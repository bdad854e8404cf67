#pragma once

#include <string>
#include <vector>

#include "pipeline/simulate.h"

namespace triax {

/// The schedule as text, one line per stage, time from left to right; F forward, B backward (of the input,
/// where W, the weights, is apart), each followed by its micro-batch and, where a stage has several, its
/// chunk as a letter. Times are those of equal F, B and W and free messages. Lines longer than `columns` are
/// continued in further blocks; of more than `blocks` (at least 2) the middle ones are left out, with a line
/// that says so. 1f1b with 2 stages and 3 micro-batches:
///
///     stage 0, keeps 2 | F0 F1 .  .  B0 -- F2 B1 -- .  B2 --
///     stage 1, keeps 1 | .  F0 B0 -- F1 B1 -- F2 B2 -- .  .
std::string render_text(const Schedule& schedule, int columns = 120, int blocks = 1 << 20);

/// One of the steps of a picture: simulated, or measured.
struct Panel {
  Timeline timeline;
  std::string title;
  std::vector<int> kept{};  ///< in_flight() of each stage, to be written beside it; or empty
};

/// A picture of steps, one above the other on one time axis, in `unit`: one row per stage, its bubble beside
/// it. A self-contained SVG document.
std::string render_svg(const std::vector<Panel>& panels, const std::string& unit = "ms");

}  // namespace triax
