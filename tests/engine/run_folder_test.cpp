#include "engine/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "comm/local_ranks.h"
#include "core/error.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() : dir_(fs::temp_directory_path() / ("triax-run-folder-" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    config_.output_dir = (dir_ / "run").string();
    config_.checkpoint.dir = config_.output_dir + "/checkpoints";
  }
  ~RunFolderTest() override { fs::remove_all(dir_); }

  template <class Body>
  std::string complaint(Body body) {
    try {
      run_local_ranks(1, {}, [&](Communicator& world, int) { body(world); });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path dir_;
  RunConfig config_;
};

TEST_F(RunFolderTest, TwoJobsDoNotShareOne) {
  EXPECT_EQ(complaint([&](Communicator& world) {
              const RunFolder first(config_, world);
              fs::create_directories(dir_ / "run/checkpoints/step-00000001");
              for (const char* resume : {"auto", "never"}) {
                config_.checkpoint.resume = resume;
                try {
                  const RunFolder second(config_, world);
                  ADD_FAILURE() << resume;
                } catch (const Error& error) {
                  EXPECT_EQ(error.kind(), ErrorKind::usage);
                  EXPECT_NE(std::string(error.what()).find(config_.output_dir + ": another job is running"),
                            std::string::npos)
                      << error.what();
                }
              }
            }),
            "");
  EXPECT_TRUE(fs::exists(dir_ / "run/checkpoints/step-00000001"));  // nobody moved it aside
  EXPECT_EQ(complaint([&](Communicator& world) {
              const RunFolder third(config_, world);
              EXPECT_EQ(third.moved_to(), config_.output_dir + ".old-1");
            }),
            "");
  EXPECT_TRUE(fs::exists(dir_ / "run.old-1/checkpoints/step-00000001"));
}

TEST_F(RunFolderTest, ReasonsAreThoseOfTheFailure) {
  const std::string text = complaint([&](Communicator& world) {
    const RunFolder folder(config_, world);
    fs::create_symlink("/dev/full", dir_ / "run/job.yaml.new");
    errno = EACCES;  // an older failure's
    folder.store_job(config_, world);
  });
  EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
}

}  // namespace
}  // namespace triax
