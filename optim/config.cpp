#include "optim/config.h"

#include <algorithm>

#include "core/fields.h"

namespace triax {

int64_t default_decay_start(const LrScheduleConfig& schedule) {
  const int64_t end = schedule.decay_steps;
  return std::min(end, std::max({int64_t{1}, schedule.warmup_steps, end - end / 10}));
}

const FieldTable<OptimizerConfig>& fields_of(const OptimizerConfig*) {
  static const FieldTable<OptimizerConfig> table = [] {
    using C = OptimizerConfig;
    FieldTable<C> t;
    t.add("name", &C::name, "The optimizer: torch.optim.AdamW's.").one_of({"adamw"});
    t.add("lr", &C::lr, "Learning rate after warm-up.").at_least(0);
    t.add("betas", &C::betas, "Decay of the running means of the gradient and of its square.")
        .at_least(0)
        .below(1);
    t.add("eps", &C::eps, "Added to the root of the second moment.").at_least(0);
    t.add("weight_decay", &C::weight_decay, "Decay of matrices; biases, norms and positions do not decay.")
        .at_least(0);
    t.add("clip_grad_norm", &C::clip_grad_norm, "Largest norm of the gradient; 0 does not clip.").at_least(0);
    return t;
  }();
  return table;
}

const FieldTable<LrScheduleConfig>& fields_of(const LrScheduleConfig*) {
  static const FieldTable<LrScheduleConfig> table = [] {
    using C = LrScheduleConfig;
    FieldTable<C> t;
    t.add("name", &C::name, "How the learning rate goes on after warm-up.")
        .one_of({"constant", "linear", "cosine", "wsd"});
    t.add("warmup_steps", &C::warmup_steps, "Steps over which the learning rate rises linearly; 0: none.")
        .at_least(0);
    t.add("decay_steps", &C::decay_steps, "Step at which min_lr is reached.")
        .derived("training.steps")
        .at_least(1);
    t.add("decay_start", &C::decay_start, "Step at which wsd begins to decay; only wsd has one.")
        .derived("nine tenths of decay_steps, not before warmup_steps")
        .at_least(1);
    t.add("min_lr", &C::min_lr, "Learning rate from decay_steps on.").at_least(0);
    return t;
  }();
  return table;
}

}  // namespace triax
