#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace triax::test {

/// A folder that goes with the test.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("triax-hf-" + std::to_string(getpid()) + "-" + std::to_string(number()++))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  static int& number() {
    static int n = 0;
    return n;
  }
  std::filesystem::path path_;
};

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_content(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// Value of element i of a tensor: small, different everywhere, exact in fp16 and bf16 too.
inline float test_value(const std::string& tensor, int64_t i) {
  uint32_t h = 2166136261u;
  for (char c : tensor) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  h = (h ^ static_cast<uint32_t>(i)) * 2654435761u;
  return static_cast<float>(static_cast<int>(h >> 25) - 64) / 64.0f;
}

/// Writes tensors with test_value()s.
inline void write_tensors(const std::filesystem::path& path,
                          const std::vector<SafeTensorsWriter::Item>& tensors,
                          StoredType type = StoredType::f32) {
  std::filesystem::remove(path);
  SafeTensorsWriter file(path, tensors, type, {{"format", "pt"}});
  for (const auto& item : tensors) {
    std::vector<float> values(static_cast<size_t>(SafeTensor{item.name, "", item.shape}.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = test_value(item.name, static_cast<int64_t>(i));
    file.append(values.data(), static_cast<int64_t>(values.size()));
  }
  file.finish();
}

}  // namespace triax::test
