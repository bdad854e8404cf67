// The shapes in docs/parallelism.md are those that a rank declares.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/plan.h"

namespace triax {
namespace {

// 16 x 2048 x 4096 on `tensor` ranks.
std::map<std::string, std::string> declared(int tensor, bool sequence_parallel) {
  RunConfig c;
  c.model.vocab_size = 51200;
  c.model.hidden_size = 4096;
  c.model.intermediate_size = 16384;
  c.model.num_attention_heads = c.model.num_key_value_heads = 32;
  c.model.num_hidden_layers = 2;
  c.model.max_position_embeddings = c.training.sequence_length = 2048;
  c.training.steps = 1;
  c.training.global_batch_size = c.training.micro_batch_size = 16;
  c.parallel.tensor = tensor;
  c.parallel.pipeline = c.parallel.data = 1;
  c.parallel.sequence_parallel = sequence_parallel;
  const RankPlan plan = plan_rank(c, tensor - 1);
  std::map<std::string, std::string> shapes;
  for (const PlannedTensors& t : plan.weights) shapes[t.name] = to_string(t.shape);
  for (const PlannedTensors& t : plan.slot_tensors.at(0)) shapes[t.name] = to_string(t.shape);
  return shapes;
}

TEST(Shapes, OfTheDocumentAreThoseOfTheCode) {
  std::ifstream page(std::string(TRIAX_SOURCE_DIR) + "/docs/parallelism.md");
  const std::array columns{declared(1, false), declared(2, false), declared(2, true)};
  std::string line;
  int rows = 0;
  bool in_table = false;
  while (std::getline(page, line)) {
    if (line.rfind("| tensor on a rank", 0) == 0) in_table = true;
    if (in_table && line.empty()) break;
    if (!in_table || line.rfind("| `", 0) != 0) continue;
    // | `name` | one rank | two ranks | two ranks, sequence parallel |
    std::istringstream cells(line);
    std::vector<std::string> cell;
    for (std::string text; std::getline(cells, text, '|');) {
      const size_t first = text.find_first_not_of(" `"), last = text.find_last_not_of(" `");
      cell.push_back(first == std::string::npos ? "" : text.substr(first, last - first + 1));
    }
    ASSERT_EQ(cell.size(), 5u) << line;
    for (size_t c = 0; c < columns.size(); ++c) {
      const auto found = columns[c].find(cell[1]);
      ASSERT_NE(found, columns[c].end()) << "no rank declares " << cell[1];
      EXPECT_EQ(cell[2 + c], found->second) << cell[1] << " in column " << c + 1;
    }
    ++rows;
  }
  EXPECT_GE(rows, 12);
}

}  // namespace
}  // namespace triax
