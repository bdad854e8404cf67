#include "core/log.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

class LogTest : public ::testing::Test {
 protected:
  LogTest() : dir_(fs::temp_directory_path() / ("triax-log-" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~LogTest() override { fs::remove_all(dir_); }
  std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  fs::path dir_;
};

TEST_F(LogTest, FileGetsAllAndTheConsoleOnlyWhatItShould) {
  const std::string path = dir_ / "rank-00001.log";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    Log first(dir_ / "rank-00000.log", 0), second(path, 1);
    first.console("from {}", "rank 0");
    second.console("hidden {}", 1);
    second.info("detail {}", 2);
    second.set_step(42);
    second.error("trouble {}", 3);
    second.note_error("more {}", 4);
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "from rank 0\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "triax: rank 1: trouble 3\n");
  const std::string text = read(path);
  for (const char* part :
       {"info: hidden 1\n", "info: detail 2\n", " error step 42: trouble 3\n", " error step 42: more 4\n"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(LogTest, AppendsAndNamesAPathThatCannotBeWritten) {
  const std::string path = dir_ / "rank-00000.log";
  { Log(path, 0).info("one"); }
  { Log(path, 0).info("two {{braces}}"); }
  const std::string text = read(path);
  EXPECT_NE(text.find("one\n"), std::string::npos);
  EXPECT_NE(text.find("two {braces}\n"), std::string::npos);
  try {
    Log bad("/proc/none/rank-00000.log", 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("can't be written"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace triax
