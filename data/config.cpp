#include "data/config.h"

#include "core/fields.h"

namespace triax {

const FieldTable<DataSource>& fields_of(const DataSource*) {
  static const FieldTable<DataSource> table = [] {
    FieldTable<DataSource> t;
    t.add("path", &DataSource::path,
          "Tokens: a .txt file (bytes), a .bin file of llm.c, or the .bin, .idx or common prefix of "
          "Megatron-LM's pair.")
        .must_be_given();
    t.add("weight", &DataSource::weight, "Share in the blend, relative to the other sources.").above(0);
    return t;
  }();
  return table;
}

const FieldTable<DataConfig>& fields_of(const DataConfig*) {
  static const FieldTable<DataConfig> table = [] {
    using C = DataConfig;
    FieldTable<C> t;
    t.add(
        "tokenizer", &C::tokenizer,
        "What makes text of tokens and back: bytes, a SentencePiece FILE.model, or a tokenizer.json (or its "
        "folder); sources of text are read only as bytes.");
    t.add("train", &C::train, "Sources to train on.").must_be_given();
    t.add("validation", &C::validation, "Sources to measure the validation loss on.").derived("none");
    t.add("validation_interval", &C::validation_interval, "Steps between two measurements.").at_least(1);
    t.add("validation_batches", &C::validation_batches, "Global batches of one measurement.").at_least(1);
    return t;
  }();
  return table;
}

}  // namespace triax
