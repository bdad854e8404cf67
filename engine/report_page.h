#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/report_data.h"

namespace triax {

/// One key of the job, as it was and as it is by default.
struct ConfigurationRow {
  std::string key, value;
  std::string standard;  ///< "required", or what it would be; of a derived one, from what
  std::string doc;       ///< its sentence
  bool changed = false;
};

struct CheckpointRow {
  std::string name;
  int64_t step = -1, bytes = -1;  ///< -1: not known
  std::string grid, loss, created;
  std::string problem;  ///< empty: complete
};

/// All that the page shows of a run; whatever its folder lacks is empty.
struct RunPage {
  std::string dir, state;  ///< state: running, finished, stopped, interrupted, fault, ended, or ""
  std::string fault;       ///< the words of the fault that ended it
  RunReport run;
  nlohmann::json summary;               ///< summary.json, or null
  std::vector<nlohmann::json> history;  ///< lines of history.jsonl
  std::vector<ConfigurationRow> configuration;
  std::vector<CheckpointRow> checkpoints;
  int64_t batch_tokens = 0, batch_sequences = 0;  ///< of a step
  std::string schedule_svg, schedule_words;
};

RunPage read_page(const std::string& run_dir, const RunReport& run);

/// The page: one HTML document (well-formed XML too) that needs nothing but itself.
std::string page_html(const RunPage& page);

/// Its parts below the curves.
std::string memory_html(const nlohmann::json& summary);
std::string communication_html(const nlohmann::json& summary);
std::string startup_html(const nlohmann::json& summary);
std::string grid_html(const nlohmann::json& summary);
std::string checkpoints_html(const std::vector<CheckpointRow>& checkpoints);
std::string history_html(const std::vector<nlohmann::json>& history);
std::string configuration_html(const std::vector<ConfigurationRow>& configuration);

}  // namespace triax
