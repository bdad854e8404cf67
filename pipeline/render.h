#pragma once

#include <string>

#include "pipeline/simulate.h"

namespace triax {

/// The schedule as text, one line per stage, time from left to right; F forward, B backward (of the input,
/// where W, the weights, is apart), each followed by its micro-batch and, where a stage has several, its
/// chunk as a letter. Times are those of equal F, B and W and free messages. Lines longer than `columns` are
/// continued in further blocks. 1f1b with 2 stages and 3 micro-batches:
///
///     stage 0, keeps 2 | F0 F1 .  .  B0 -- F2 B1 -- .  B2 --
///     stage 1, keeps 1 | .  F0 B0 -- F1 B1 -- F2 B2 -- .  .
std::string render_text(const Schedule& schedule, int columns = 120);

/// A picture of a simulated or measured step, one row per stage and a time axis in milliseconds, as a
/// self-contained SVG document. `title` is written above it.
std::string render_svg(const Timeline& timeline, const std::string& title);

}  // namespace triax
