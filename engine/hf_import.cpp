#include "engine/hf_import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/folders.h"
#include "checkpoint/writer.h"
#include "core/config_tree.h"
#include "data/tokenizer.h"
#include "engine/hf_config.h"
#include "engine/job.h"
#include "engine/legal.h"
#include "engine/model_from.h"
#include "engine/new_folder.h"
#include "engine/open_model.h"
#include "engine/pretrained.h"
#include "model/gpt.h"

namespace triax {

namespace fs = std::filesystem;

namespace {

// Why the model that is imported can't be given text; empty when it can.
std::string tokenizer_note(const std::string& tokenizer) {
  try {
    open_tokenizer(tokenizer);
    return "";
  } catch (const Error& error) {
    return fmt::format(
        "the checkpoint has no tokenizer that Triax reads ({}); `triax generate` and `triax evaluate` take "
        "text for it with --tokenizer alone, else tokens",
        error.what());
  }
}

// A job of one rank around the model. What a model's folder does not say is as short as can be, but for the
// window of an evaluation, which is that of the folder itself; it is not compared when a job starts from the
// checkpoint (engine/restore.cpp).
RunConfig job_around(const fs::path& folder, const std::vector<std::string>& sets) {
  FieldReport report;
  ConfigNode root = ConfigNode::map(), model = ConfigNode::map(), data = ConfigNode::map();
  model.put("from", ConfigNode::scalar(folder.string(), true));
  data.put("train", ConfigNode::list());
  // Also where there is none that Triax reads: the default would make bytes of the model's tokens.
  data.put("tokenizer", ConfigNode::scalar(folder.string(), true));
  root.put("name", ConfigNode::scalar(folder.filename().string(), true));
  root.put("model", std::move(model));
  root.put("data", std::move(data));
  const std::string window =
      fmt::format("training.sequence_length={}", usual_window(read_hf_config(folder).model));
  for (const std::string& set :
       {std::string("training={steps: 1, global_batch_size: 1, micro_batch_size: 1}"), window,
        std::string("parallel={tensor: 1, pipeline: 1, data: 1}")})
    set_value(root, set, report.problems);
  for (const std::string& set : sets) set_value(root, set, report.problems);
  RunConfig config;
  if (fill_model_from(root, report)) {
    read_fields(root, config, report);
    check_legal(config, 1, "a checkpoint of one shard", report);
  }
  if (!report.problems.empty()) fail_usage("{}", fmt::join(report.problems, "\n"));
  return config;
}

/// The pieces of a checkpoint of one shard: of every parameter the weight and the moments.
class Pieces {
 public:
  explicit Pieces(const PretrainedFolder& folder)
      : folder_(folder), zeros_(static_cast<size_t>(source_elements)), buffer_(zeros_) {
    for (const ParamSpec& spec : logical_parameters(folder.model()))
      for (StateKind kind : {StateKind::weight, StateKind::exp_avg, StateKind::exp_avg_sq})
        pieces_.push_back({kind, spec.name, spec.global, whole(spec.global), buffer_.data()});
  }
  const std::vector<StatePiece>& list() const { return pieces_; }

  const float* read(size_t piece, int64_t begin, int64_t end) {
    const StatePiece& p = pieces_[piece];
    if (p.kind != StateKind::weight) return zeros_.data();
    int64_t at = 0;
    for (const Box& box : boxes_of_range(p.box, begin, end)) {
      folder_.read(p.name, box, buffer_.data() + at);
      at += box.numel();
    }
    return buffer_.data();
  }

 private:
  const PretrainedFolder& folder_;
  std::vector<StatePiece> pieces_;
  std::vector<float> zeros_, buffer_;
};

}  // namespace

HfImport import_hf(const fs::path& folder, const fs::path& out, const std::vector<std::string>& sets,
                   bool force) {
  const fs::path source = fs::absolute(folder / "").lexically_normal().parent_path();
  const auto named = as_step_folder(fs::absolute(out / "").parent_path());
  if (named && named->step != 0)
    fail_usage("{} would be the name of step {}, an imported model is step 0; name another folder",
               out.string(), named->step);
  RunConfig config = job_around(source, sets);
  const PretrainedFolder pretrained(source);
  pretrained.check_tied();
  NewFolder target(out, manifest_file, force);
  Pieces pieces(pretrained);
  config.model.from.clear();  // the checkpoint holds what came from there

  SaveRequest save;
  save.dir = target.path();
  save.config = to_yaml(config);
  save.grid = {{"text", "an import of " + source.string()}};
  save.extra = {{"imported", {{"folder", source.string()}}}};
  save.pieces = pieces.list();
  save.source = [&](size_t piece, int64_t begin, int64_t end) { return pieces.read(piece, begin, end); };
  const auto alone = make_self_communicator({});
  const SaveResult saved = save_checkpoint(*alone, save);
  // The checkpoint's folder takes the place of the one around it.
  for (const auto& entry : fs::directory_iterator(saved.folder))
    rename_path(entry.path(), target.path() / entry.path().filename());
  fs::remove(saved.folder);
  fs::remove(target.path() / "latest");
  target.commit();
  HfImport done{out, static_cast<int64_t>(pieces.list().size()), saved.bytes, pretrained.notes()};
  if (std::string note = tokenizer_note(config.data.tokenizer); !note.empty())
    done.notes.push_back(std::move(note));
  return done;
}

}  // namespace triax
