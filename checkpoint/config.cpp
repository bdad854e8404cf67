#include "checkpoint/config.h"

#include "core/fields.h"

namespace triax {

const FieldTable<CheckpointConfig>& fields_of(const CheckpointConfig*) {
  static const FieldTable<CheckpointConfig> table = [] {
    using C = CheckpointConfig;
    FieldTable<C> t;
    t.add("dir", &C::dir, "Folder of the checkpoints.").derived("<output_dir>/checkpoints");
    t.add("interval", &C::interval, "Steps between two checkpoints; the last step always saves.").at_least(1);
    t.add("every_minutes", &C::every_minutes,
          "Minutes after which a checkpoint is saved too, whatever the step; 0: none.")
        .at_least(0);
    t.add("keep", &C::keep, "Number of newest checkpoints that stay.").at_least(1);
    t.add("async", &C::async, "Write in the background while training goes on.");
    t.add("on_error", &C::on_error,
          "When a checkpoint can't be saved: make a final attempt and stop if that fails too, or continue.")
        .one_of({"stop", "continue"});
    t.add("save_initial", &C::save_initial, "Also save the state that a run starts from.");
    t.add("resume", &C::resume, "auto: the newest complete checkpoint; never; or the path of one.");
    t.add("load", &C::load,
          "Of the checkpoint that resume names: all, to go on from its step; or its weights alone, to start "
          "another run from them.")
        .one_of({"all", "weights"});
    return t;
  }();
  return table;
}

}  // namespace triax
