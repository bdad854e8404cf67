#include "launch/plan_json.h"

#include <nlohmann/json.hpp>

#include "engine/job.h"
#include "model/gpt.h"

namespace triax {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const std::vector<PlannedTensors>& tensors) {
  Json list = Json::array();
  for (const PlannedTensors& t : tensors) {
    std::vector<int64_t> shape(t.shape.begin(), t.shape.end());
    list.push_back({{"name", t.name},
                    {"shape", shape},
                    {"dtype", name_of(t.dtype)},
                    {"count", t.count},
                    {"bytes", t.bytes}});
  }
  return list;
}

Json stage_json(const JobPlan& plan, size_t s) {
  const RankPlan& rank = plan.stages[s];
  Json stage{{"stage", s},
             {"first_rank", rank.rank},
             {"layers", plan.layers[s]},
             {"parameters_per_rank", rank.parameters},
             {"in_flight", rank.in_flight},
             {"flops_per_step", rank.flops()}};
  for (const MemoryLine& line : rank.memory) stage["memory"][line.name] = line.bytes;
  stage["peak_bytes"] = rank.peak_bytes;
  stage["weights"] = to_json(rank.weights);
  stage["slot_bytes"] = rank.slot_bytes;
  stage["slot_bytes_in_gradients"] = rank.lent_bytes;
  stage["slot"] = Json::array();
  for (const auto& chunk : rank.slot_tensors) stage["slot"].push_back(to_json(chunk));
  stage["bytes_per_step"] = Json::object();
  for (const auto& [key, entry] : rank.bytes_per_step)
    stage["bytes_per_step"][key.first][std::string(name_of(key.second))] = {{"calls", entry.calls},
                                                                            {"bytes", entry.bytes}};
  stage["bytes_per_straggler_window"] = Json::object();
  for (const auto& [key, entry] : rank.bytes_per_window)
    stage["bytes_per_straggler_window"][key.first][std::string(name_of(key.second))] = {
        {"calls", entry.calls}, {"bytes", entry.bytes}};
  return stage;
}

Json grid_json(const RunConfig& c) {
  return {{"tensor", c.parallel.tensor}, {"pipeline", c.parallel.pipeline}, {"data", c.parallel.data}};
}

}  // namespace

std::string plan_json(const JobPlan& plan, const SchedulePlan& schedule, const PlanAnswers& answers) {
  const RunConfig& c = plan.config;
  Json json;
  json["ranks"] = world_size(c);
  json["grid"] = grid_json(c);
  json["parameters"] = parameter_count(c.model);
  json["flops_per_token"] = flops_per_token(c.model, c.training.sequence_length);
  json["tokens_per_step"] = c.training.global_batch_size * c.training.sequence_length;
  json["micro_batches"] = plan.micro_batches;
  json["bubble"] = schedule.timeline.bubble;
  json["schedule"] = to_json(schedule);
  for (size_t s = 0; s < plan.stages.size(); ++s) json["stages"].push_back(stage_json(plan, s));
  json["peak_bytes"] = plan.peak_bytes();
  if (answers.device) {
    json["device"] = {
        {"name", answers.device->name},
        {"bytes", answers.device->bytes()},
        {"needed_bytes", bytes_on(plan, *answers.device)},
        {"fits", static_cast<double>(bytes_on(plan, *answers.device)) <= answers.device->bytes()},
        {"largest_micro_batch_size", nullptr}};
    if (answers.largest_micro_batch)
      json["device"]["largest_micro_batch_size"] = *answers.largest_micro_batch;
  }
  if (answers.largest_asked) json["largest_model"] = nullptr;
  if (answers.largest_model) {
    const ModelConfig& m = answers.largest_model->model;
    json["largest_model"] = {
        {"parameters", parameter_count(m)},
        {"hidden_size", m.hidden_size},
        {"num_hidden_layers", m.num_hidden_layers},
        {"num_attention_heads", m.num_attention_heads},
        {"intermediate_size", m.intermediate_size},
        {"needed_bytes", bytes_on(plan_job(*answers.largest_model, &*answers.device), *answers.device)}};
  }
  json["config"] = Json::parse(to_json(c));
  return json.dump(2);
}

std::string search_json(const GridSearch& search, int ranks) {
  Json json{{"ranks", ranks},
            {"grids", Json::array()},
            {"too_large", Json::array()},
            {"not_legal", search.refused}};
  const auto list = [&](const char* key, const std::vector<GridChoice>& choices) {
    for (const GridChoice& g : choices) {
      const StepCost& c = g.cost;
      Json grid = grid_json(g.config);
      grid["peak_bytes"] = g.peak_bytes;
      grid["seconds"] = {{"step", c.seconds},   {"compute", c.compute}, {"tensor", c.tensor},
                         {"bubble", c.bubble},  {"data", c.data},       {"update", c.update},
                         {"latency", c.latency}};
      json[key].push_back(std::move(grid));
    }
  };
  list("grids", search.fitting);
  list("too_large", search.too_large);
  return json.dump(2);
}

}  // namespace triax
