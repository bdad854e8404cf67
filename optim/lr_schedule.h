#pragma once

#include <cstdint>

#include "optim/config.h"

namespace triax {

/// The learning rate of a step, a function of its number (from 1) alone:
///
///   lr * step / warmup_steps                               up to warmup_steps
///   constant: lr for ever
///   cosine:   min_lr + (lr - min_lr) (1 + cos(pi x)) / 2   (Loshchilov and Hutter, "SGDR", 2017)
///   linear:   lr + (min_lr - lr) x
///   wsd:      lr up to decay_start, linear from there      (Hu et al., "MiniCPM", 2024)
///   min_lr                                                 after decay_steps
///
/// where x goes from 0 at warmup_steps (wsd: decay_start) to 1 at decay_steps. decay_steps 0 is
/// `total_steps`; with wsd, decay_start 0 is 9/10 of decay_steps, and a start within the warm-up is its end.
/// A warm-up that lasts beyond decay_steps is done in full and followed by min_lr. An unknown name is a usage
/// error that lists the names.
double learning_rate(const LrScheduleConfig& schedule, const OptimizerConfig& optimizer, int64_t step,
                     int64_t total_steps);

}  // namespace triax
