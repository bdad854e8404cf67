// The jobs of examples/: what their comments say is what `triax plan` says.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace triax {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// What a command prints when it is run where its example's path is right; its exit status in *status.
std::string output(const std::string& command, int* status) {
  std::FILE* pipe = popen(
      ("cd " TRIAX_SOURCE_DIR " && PATH=" TRIAX_BINARY_DIR ":$PATH " + command + " 2>/dev/null").c_str(),
      "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  *status = WEXITSTATUS(pclose(pipe));
  return text;
}

class Examples : public ::testing::TestWithParam<std::string> {};

TEST_P(Examples, PlansFitAndTheirCommentsAreRight) {
  const std::string text = read(fs::path(TRIAX_SOURCE_DIR) / "examples" / (GetParam() + ".yaml"));
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, std::regex("#   (triax plan .*)"))) << "no plan in its comment";
  const std::string command = found[1];
  EXPECT_NE(command.find("examples/" + GetParam() + ".yaml"), std::string::npos);
  int status = -1;
  EXPECT_NE(output(command, &status).find(" GiB fit\n"), std::string::npos) << command;
  EXPECT_EQ(status, 0);
  const auto plan = nlohmann::json::parse(output(command + " --json", &status));
  ASSERT_EQ(status, 0);
  // "A step: 512 sequences x 1024 tokens = 524288 tokens: 8 replicas x 4 micro-batches x 16 sequences."
  ASSERT_TRUE(std::regex_search(
      text, found,
      std::regex("# A step: (\\d+) sequences x (\\d+) tokens = (\\d+) tokens: (\\d+) replicas? x (\\d+) "
                 "micro-batch(?:es)? x (\\d+) sequences?\\.")));
  const auto said = [&](size_t i) { return std::stoll(found[i]); };
  const auto& job = plan.at("config");
  const auto& training = job.at("training");
  EXPECT_EQ(said(1), training.at("global_batch_size"));
  EXPECT_EQ(said(2), training.at("sequence_length"));
  EXPECT_EQ(said(3), said(1) * said(2));
  EXPECT_EQ(said(4), job.at("parallel").at("data"));
  EXPECT_EQ(said(6), training.at("micro_batch_size"));
  EXPECT_EQ(said(1), said(4) * said(5) * said(6));
}

INSTANTIATE_TEST_SUITE_P(All, Examples,
                         ::testing::Values("laptop", "gpt2-124m-cpu", "gpt2-124m-8gpu", "llama-1b-8gpu",
                                           "llama-7b-64gpu", "llama-70b-1024gpu"),
                         [](const auto& info) {
                           return std::regex_replace(info.param, std::regex("-"), "_");
                         });

TEST(ExampleFiles, AreAllTested) {
  int jobs = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(TRIAX_SOURCE_DIR) / "examples"))
    if (entry.path().extension() == ".yaml" && read(entry.path()).find("\nmodel:") != std::string::npos)
      ++jobs;
  EXPECT_EQ(jobs, 7) << "the six above, and demo.yaml, which `make demo` runs";
}

}  // namespace
}  // namespace triax
