#include "engine/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "checkpoint/crc32c.h"
#include "core/fields.h"
#include "engine/job.h"

namespace triax {

namespace {

// The wire format of protocol buffers: a key (field number and type), then the value.
enum Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<uint64_t>(field << 3 | wire));
}

template <class T>
void put_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_bytes(std::string& out, int field, const std::string& value) {
  put_key(out, field, bytes);
  put_varint(out, value.size());
  out += value;
}

// Event { double wall_time = 1; int64 step = 2; ... }
std::string event_head(int64_t step) {
  std::string event;
  put_key(event, 1, fixed64);
  put_raw(event, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  put_key(event, 2, varint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

// Summary { repeated Value value = 1; }, Value { string tag = 1; float simple_value = 2; }
void put_scalar(std::string& summary, const char* tag, double value) {
  std::string entry;
  put_bytes(entry, 1, tag);
  put_key(entry, 2, fixed32);
  put_raw(entry, static_cast<float>(value));
  put_bytes(summary, 1, entry);
}

// SummaryMetadata { PluginData plugin_data = 1; }, PluginData { string plugin_name = 1; bytes content = 2; }
std::string metadata_of(const std::string& plugin, const std::string& content) {
  std::string data, metadata;
  put_bytes(data, 1, plugin);
  if (!content.empty()) put_bytes(data, 2, content);
  put_bytes(metadata, 1, data);
  return metadata;
}

// Value { tag = 1; TensorProto tensor = 8; metadata = 9; }, TensorProto { dtype = 1 (DT_STRING 7);
// TensorShapeProto tensor_shape = 2 { repeated Dim dim = 2 { int64 size = 1; } }; repeated bytes string_val =
// 8; }
std::string text_value(const std::string& tag, const std::string& text) {
  std::string dim, shape, tensor, value;
  put_key(dim, 1, varint);
  put_varint(dim, 1);
  put_bytes(shape, 2, dim);
  put_key(tensor, 1, varint);
  put_varint(tensor, 7);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  put_bytes(value, 1, tag);
  put_bytes(value, 8, tensor);
  put_bytes(value, 9, metadata_of("text", ""));
  return value;
}

// google.protobuf.Value { number_value = 2; string_value = 3; bool_value = 4; }
std::string parameter_value(const ConfigNode& node) {
  std::string value;
  char* end = nullptr;
  const double number = std::strtod(node.text.c_str(), &end);
  if (!node.quoted && (node.text == "true" || node.text == "false")) {
    put_key(value, 4, varint);
    put_varint(value, node.text == "true" ? 1 : 0);
  } else if (!node.quoted && !node.text.empty() && *end == '\0') {
    put_key(value, 2, fixed64);
    put_raw(value, number);
  } else {
    put_bytes(value, 3, node.text);
  }
  return value;
}

// SessionStartInfo { map<string, Value> hparams = 1; }: entries of key = 1 and value = 2. What is no single
// value is in the text.
void put_parameters(std::string& session, const ConfigNode& node, const std::string& prefix) {
  for (const ConfigNode::Entry& entry : node.entries) {
    if (entry.value.kind == ConfigNode::Kind::map)
      put_parameters(session, entry.value, prefix + entry.key + ".");
    if (entry.value.kind != ConfigNode::Kind::scalar) continue;
    std::string pair;
    put_bytes(pair, 1, prefix + entry.key);
    put_bytes(pair, 2, parameter_value(entry.value));
    put_bytes(session, 1, pair);
  }
}

// Markdown that shows the lines as they are.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) code += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return code;
}

uint32_t masked_crc(const void* data, size_t size) {
  const uint32_t crc = crc32c(0, data, size);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

// Makes the folder, too.
std::string new_file_in(const std::string& dir) {
  std::filesystem::create_directories(dir);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  return fmt::format("{}/events.out.tfevents.{:010}.{}.{}", dir,
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), host, getpid());
}

}  // namespace

TensorBoardFile::TensorBoardFile(const std::string& dir, int64_t first_step, AppendFile::Report report)
    : file_(new_file_in(dir), std::move(report)) {
  std::string version = event_head(0);
  put_bytes(version, 3, "brain.Event:2");
  write(version);
  if (first_step <= 1) return;
  // SessionLog { SessionStatus status = 1; }, START = 1: what older files say from this step on is void.
  std::string start = event_head(first_step), session;
  put_key(session, 1, varint);
  put_varint(session, 1);
  put_bytes(start, 7, session);
  write(start);
}

void TensorBoardFile::describe(const RunConfig& config) {
  std::string session, plugin, value, summary;
  put_parameters(session, write_fields(config), "");
  // HParamsPluginData { int32 version = 1; oneof { SessionStartInfo session_start_info = 3; } }
  put_bytes(plugin, 3, session);
  put_bytes(value, 1, "_hparams_/session_start_info");
  put_bytes(value, 9, metadata_of("hparams", plugin));
  put_bytes(summary, 1, text_value("configuration/text_summary", as_code(to_yaml(config))));
  put_bytes(summary, 1, value);
  std::string event = event_head(0);
  put_bytes(event, 5, summary);
  write(event);
}

void TensorBoardFile::append(const StepMetrics& m) {
  std::string summary;
  put_scalar(summary, "loss/train", m.loss);
  if (m.validation_loss) put_scalar(summary, "loss/validation", *m.validation_loss);
  put_scalar(summary, "optimizer/grad_norm", m.grad_norm);
  put_scalar(summary, "optimizer/lr", m.learning_rate);
  if (m.noise_scale) put_scalar(summary, "optimizer/gradient_noise_scale", *m.noise_scale);
  put_scalar(summary, "speed/tokens_per_second", m.tokens_per_second);
  put_scalar(summary, "speed/tflops_per_rank", m.tflops);
  put_scalar(summary, "time/step_seconds", m.step_seconds);
  put_scalar(summary, "time/communication_exposed_seconds", m.exposed_seconds);
  put_scalar(summary, "time/communication_hidden_seconds", m.hidden_seconds);
  if (m.slowest_rank) {
    put_scalar(summary, "time/compute_seconds_max", m.compute_seconds_max);
    put_scalar(summary, "time/compute_seconds_median", m.compute_seconds_median);
  }
  put_scalar(summary, "memory/peak_bytes", static_cast<double>(m.peak_bytes));
  std::string event = event_head(m.step);
  put_bytes(event, 5, summary);
  write(event);
}

void TensorBoardFile::write(const std::string& event) {
  std::string record;
  put_raw(record, static_cast<uint64_t>(event.size()));
  put_raw(record, masked_crc(record.data(), record.size()));
  record += event;
  put_raw(record, masked_crc(event.data(), event.size()));
  file_.append(record);
}

}  // namespace triax
