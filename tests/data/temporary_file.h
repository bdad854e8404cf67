#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace triax::test {

/// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "triax-data-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

 private:
  std::string path_;
};

/// A stream whose token i is i + base: what was read tells where it stood.
class CountingTokens final : public TokenSource {
 public:
  explicit CountingTokens(int64_t tokens, int32_t base = 0) : tokens_(tokens), base_(base) {}
  int64_t tokens() const override { return tokens_; }
  void read(int64_t first, std::span<int32_t> out) const override {
    if (first < 0 || first + static_cast<int64_t>(out.size()) > tokens_) throw std::out_of_range("tokens");
    std::iota(out.begin(), out.end(), static_cast<int32_t>(first) + base_);
  }
  int64_t vocabulary() const override { return base_ + tokens_; }
  const std::string& name() const override { return name_; }
  std::string fingerprint() const override { return "counting"; }

 private:
  int64_t tokens_;
  int32_t base_;
  std::string name_ = "counting tokens";
};

using Sources = std::vector<std::shared_ptr<const TokenSource>>;

inline Sources counting(std::vector<int64_t> sizes) {
  Sources sources;
  for (size_t k = 0; k < sizes.size(); ++k)
    sources.push_back(std::make_shared<CountingTokens>(sizes[k], static_cast<int32_t>(1000000 * k)));
  return sources;
}

}  // namespace triax::test
