#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace triax {

inline constexpr const char* safetensors_file = "model.safetensors";
inline constexpr const char* safetensors_index = "model.safetensors.index.json";

/// The tensors of a model's folder as Hugging Face writes it: model.safetensors, or several files that
/// model.safetensors.index.json lists. Opening reads the headers alone, and checks that index and files
/// agree. Errors name file and tensor.
class SafeTensorsFolder {
 public:
  explicit SafeTensorsFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const;
  /// Null when there is none.
  const SafeTensor* find(const std::string& name) const;
  /// Elements [first, first + count) of a tensor that is there.
  void read(const std::string& name, int64_t first, int64_t count, float* out) const;

 private:
  struct Place {
    const SafeTensorsFile* file;
    const SafeTensor* tensor;
  };
  void open_index();
  void add(const SafeTensorsFile& file);

  std::filesystem::path path_;
  std::vector<std::unique_ptr<SafeTensorsFile>> files_;
  std::map<std::string, Place> places_;
};

}  // namespace triax
