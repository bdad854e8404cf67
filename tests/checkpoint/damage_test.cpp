// Whatever is done to a checkpoint's files, nothing is accepted silently and the file is named.

#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/crc32c.h"
#include "checkpoint/file_io.h"
#include "checkpoint/verify.h"
#include "logical_state.h"

namespace triax::test {
namespace {

/// A folder of files kept in memory, so that each experiment starts from the good ones.
class Checkpoint {
 public:
  explicit Checkpoint(const fs::path& folder) : folder_(folder) {
    for (const auto& entry : fs::directory_iterator(folder))
      files_[entry.path().filename().string()] = read_file(entry.path());
  }
  void restore() const {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const auto& [name, text] : files_) write_text(folder_ / name, text);
  }
  void restore(const std::string& name) const { write_text(folder_ / name, files_.at(name)); }
  const std::map<std::string, std::string>& files() const { return files_; }
  fs::path operator/(const std::string& name) const { return folder_ / name; }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
  std::map<std::string, std::string> files_;
};

// Damage that all looks at: load refuses with the file's name, and so does verify.
void expect_refused(const Checkpoint& checkpoint, const std::string& file, const std::string& what) {
  const std::string error = load_error(checkpoint.folder());
  EXPECT_NE(error.find(file), std::string::npos) << what << ": load says '" << error << "'";
  const VerifyReport report = verify_checkpoint(checkpoint.folder());
  std::string all;
  for (const std::string& p : report.problems) all += p + "\n";
  EXPECT_NE(all.find(file), std::string::npos) << what << ": verify says '" << all << "'";
}

class Damage : public ::testing::Test {
 protected:
  Damage()
      : checkpoint_(save_state(folder_ / "run", 100, 3, 4)),
        older_(save_state(folder_ / "run", 50, 3, 5)),
        other_(save_state(folder_ / "other", 100, 3, 6)) {}
  TestFolder folder_;
  Checkpoint checkpoint_, older_, other_;
};

TEST_F(Damage, AFlippedBitAnywhereIsFound) {
  std::mt19937_64 random(1);
  for (const auto& [name, text] : checkpoint_.files())
    for (int i = 0; i < 60; ++i) {
      std::string damaged = text;
      const size_t at = i == 0 ? 0 : i == 1 ? text.size() - 1 : random() % text.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
      write_text(checkpoint_ / name, damaged);
      const VerifyReport report = verify_checkpoint(checkpoint_.folder());
      ASSERT_EQ(report.problems.size(), 1u) << name << " byte " << at;
      EXPECT_NE(report.problems[0].find(name), std::string::npos) << report.problems[0];
      if (i % 10 == 0) expect_refused(checkpoint_, name, "a bit of byte " + std::to_string(at));
      checkpoint_.restore(name);
    }
  EXPECT_EQ(load_error(checkpoint_.folder(), 2), "");  // the undamaged one loads
}

TEST_F(Damage, TruncationZeroedPagesAndMissingFilesAreFound) {
  for (const auto& [name, text] : checkpoint_.files()) {
    for (size_t keep : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 1}) {
      write_text(checkpoint_ / name, text.substr(0, keep));
      expect_refused(checkpoint_, name, "truncation to " + std::to_string(keep));
    }
    write_text(checkpoint_ / name, text + '\0');
    expect_refused(checkpoint_, name, "a byte more");
    std::string zeroed = text;
    const size_t begin = text.find_first_not_of('\0', text.size() / 3) / 4096 * 4096;
    zeroed.replace(begin, std::min<size_t>(4096, text.size() - begin),
                   std::min<size_t>(4096, text.size() - begin), '\0');
    write_text(checkpoint_ / name, zeroed);
    expect_refused(checkpoint_, name, "a zeroed page");
    fs::remove(checkpoint_ / name);
    expect_refused(checkpoint_, name, "missing");
    fs::create_directory(checkpoint_ / name);
    expect_refused(checkpoint_, name, "a folder in its place");
    fs::remove(checkpoint_ / name);
    checkpoint_.restore(name);
  }
}

TEST_F(Damage, SwappedShardsAreFoundAndExplained) {
  const std::string a = "shard-00000-of-00003.h5", b = "shard-00002-of-00003.h5";
  write_text(checkpoint_ / a, checkpoint_.files().at(b));
  write_text(checkpoint_ / b, checkpoint_.files().at(a));
  expect_refused(checkpoint_, a, "swapped");
  expect_refused(checkpoint_, b, "swapped");
  EXPECT_NE(load_error(checkpoint_.folder()).find("it is " + b + " under a wrong name"), std::string::npos)
      << load_error(checkpoint_.folder());
}

TEST_F(Damage, FilesOfAnotherStepOrRunAreFoundAndExplained) {
  for (const auto& [name, text] : checkpoint_.files()) {
    if (name == "manifest.json") continue;
    write_text(checkpoint_ / name, older_.files().at(name));
    expect_refused(checkpoint_, name, "of another step");
    if (name != "checkpoint.h5") {
      EXPECT_NE(load_error(checkpoint_.folder()).find("of another checkpoint (step 50"), std::string::npos)
          << load_error(checkpoint_.folder());
    }
    write_text(checkpoint_ / name, other_.files().at(name));
    expect_refused(checkpoint_, name, "of another run");
    checkpoint_.restore(name);
  }
  write_text(checkpoint_ / "manifest.json", older_.files().at("manifest.json"));
  expect_refused(checkpoint_, "shard-00001-of-00003.h5", "the manifest of another step");
}

TEST_F(Damage, NamesTheTensorWhoseDataAreDamaged) {
  const CheckpointInfo info = read_manifest(checkpoint_.folder());
  const FileRecord& file = info.files[1];
  for (const BoxRecord& box : file.boxes) {
    std::string text = checkpoint_.files().at(file.name);
    char& byte = text[static_cast<size_t>(box.byte_offset)];
    byte = static_cast<char>(byte ^ 4);
    write_text(checkpoint_ / file.name, text);
    const std::string error = load_error(checkpoint_.folder());
    const std::string name = info.tensors[static_cast<size_t>(box.tensor)].path();
    EXPECT_NE(error.find("tensors: " + name + " " + to_string(box.box)), std::string::npos) << error;
    checkpoint_.restore(file.name);
  }
}

TEST_F(Damage, BuffersStayUntouchedWhenACheckpointIsRefused) {
  write_text(checkpoint_ / "shard-00001-of-00003.h5", "no");
  run_local_ranks(2, {}, [&](Communicator& world, int rank) {
    const Pieces pieces = cut(small_model(), 2, rank, 3);
    fill(pieces, 77);
    EXPECT_THROW(load_checkpoint(world, checkpoint_.folder(), pieces.list), DamagedCheckpoint);
    EXPECT_EQ(wrong_elements(pieces, 77), 0);
  });
}

// One corruption of a random kind: what it was, and the file that must be named; nothing when it would change
// no bit.
std::pair<std::string, std::string> corrupt(const Checkpoint& checkpoint, const Checkpoint& older,
                                            const Checkpoint& other, std::mt19937_64& random) {
  const auto& files = checkpoint.files();
  const auto& [name, text] = *std::next(files.begin(), static_cast<int64_t>(random() % files.size()));
  const auto shard = [&] { return fmt::format("shard-{:05}-of-00003.h5", random() % 3); };
  const size_t at = random() % text.size();
  std::string damaged = text;
  switch (random() % 7) {
    case 0:
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
      write_text(checkpoint / name, damaged);
      return {fmt::format("a bit of byte {}", at), name};
    case 1: {
      const size_t begin = at / 4096 * 4096, length = std::min<size_t>(4096, text.size() - begin);
      damaged.replace(begin, length, length, '\0');
      if (damaged == text) return {};
      write_text(checkpoint / name, damaged);
      return {fmt::format("the page at {} zeroed", begin), name};
    }
    case 2:
      write_text(checkpoint / name, text.substr(0, at));
      return {fmt::format("truncated to {}", at), name};
    case 3:
      fs::remove(checkpoint / name);
      return {"missing", name};
    case 4: {
      const std::string a = shard(), b = shard();
      if (a == b) return {};
      write_text(checkpoint / a, files.at(b));
      write_text(checkpoint / b, files.at(a));
      return {"swapped with " + b, a};
    }
    case 5: {
      const std::string a = shard();
      write_text(checkpoint / a, (random() % 2 ? older : other).files().at(a));
      return {"of another step or run", a};
    }
    default:
      write_text(checkpoint / "manifest.json", (random() % 2 ? older : other).files().at("manifest.json"));
      return {"the manifest of another step or run", shard()};
  }
}

void corrupt_at_random(int corruptions, const Checkpoint& checkpoint, const Checkpoint& older,
                       const Checkpoint& other) {
  std::mt19937_64 random(3);
  for (int done = 0; done < corruptions;) {
    const auto [what, file] = corrupt(checkpoint, older, other, random);
    if (file.empty()) continue;
    expect_refused(checkpoint, file, what);
    checkpoint.restore();
    ++done;
  }
  EXPECT_EQ(load_error(checkpoint.folder()), "");
}

TEST_F(Damage, NoRandomCorruptionIsAccepted) {
  corrupt_at_random(times(60), checkpoint_, older_, other_);
}

class FullDamage : public Damage {};

TEST_F(FullDamage, AThousandRandomCorruptions) {
  corrupt_at_random(1000, checkpoint_, older_, other_);
}

TEST_F(Damage, ANewerFormatIsNoDamage) {
  CheckpointInfo info = read_manifest(checkpoint_.folder());
  std::string text = manifest_text(info);
  const std::string now = "\"format_version\": 1";
  text.replace(text.find(now), now.size(), "\"format_version\": 2");
  const std::string body = text.substr(0, text.find("  \"checksum\""));
  text = body + fmt::format("  \"checksum\": \"{:08x}\"\n}}\n", crc32c(0, body.data(), body.size()));
  write_text(checkpoint_ / "manifest.json", text);
  const std::string error = load_error(checkpoint_.folder());
  EXPECT_NE(error.find("format version 2"), std::string::npos) << error;
}

// A checkpoint copied to another step's name would win every resume and never get older.
TEST_F(Damage, AnotherStepsNameIsNotBelieved) {
  fs::copy(older_.folder(), folder_ / "run" / "step-00000099", fs::copy_options::recursive);
  fs::copy(older_.folder(), folder_ / "run" / "step-00000200", fs::copy_options::recursive);
  const FoundCheckpoint found = find_checkpoint(folder_ / "run");
  ASSERT_TRUE(found.info);
  EXPECT_EQ(found.info->step, 100);
  ASSERT_EQ(found.problems.size(), 1u);
  EXPECT_NE(found.problems[0].find("step-00000200 is the checkpoint of step 50"), std::string::npos)
      << found.problems[0];
  EXPECT_FALSE(verify_checkpoint(folder_ / "run" / "step-00000099").problems.empty());
}

// A newer program's checkpoint is not damaged, and an older one must not take its place.
TEST_F(Damage, AnotherVersionIsNotPassedOver) {
  std::string text = read_text(checkpoint_ / "manifest.json");
  const std::string now = fmt::format("\"format_version\": {}", int{format_version});
  text.replace(text.find(now), now.size(), "\"format_version\": 2");
  const std::string body = text.substr(0, text.find("  \"checksum\""));
  write_text(checkpoint_ / "manifest.json",
             body + fmt::format("  \"checksum\": \"{:08x}\"\n}}\n", crc32c(0, body.data(), body.size())));
  EXPECT_THROW(find_checkpoint(folder_ / "run"), Error);
}

TEST_F(Damage, TheNewestGoodOneIsFoundAndTheDamagedReported) {
  const fs::path run = folder_ / "run";
  write_text(run / "latest", "step-00000050\n");  // lags behind
  fs::create_directory(run / "step-00000300");
  fs::create_directory(run / ".tmp-step-00000400-0123");
  write_text(run / "step-00000500", "a file");
  fs::create_directory(run / "step-x");
  FoundCheckpoint found = find_checkpoint(run);
  ASSERT_TRUE(found.info);
  EXPECT_EQ(found.info->step, 100);
  ASSERT_EQ(found.problems.size(), 1u);
  EXPECT_NE(found.problems[0].find("step-00000300"), std::string::npos) << found.problems[0];

  found = find_checkpoint(run, {checkpoint_.folder()});  // it turned out to be damaged
  ASSERT_TRUE(found.info);
  EXPECT_EQ(found.info->step, 50);

  fs::remove(checkpoint_ / "shard-00002-of-00003.h5");
  run_local_ranks(3, {}, [&](Communicator& world, int) {
    const FoundCheckpoint all = find_checkpoint(world, run);
    ASSERT_TRUE(all.info);
    EXPECT_EQ(all.info->step, 50);
    EXPECT_EQ(all.info->folder, older_.folder());
    ASSERT_EQ(all.problems.size(), 2u);
    EXPECT_NE(all.problems[1].find("shard-00002-of-00003.h5"), std::string::npos) << all.problems[1];
  });
  EXPECT_TRUE(fs::exists(checkpoint_.folder())) << "a damaged one is kept";
  EXPECT_FALSE(find_checkpoint(folder_ / "nothing").info);
}

}  // namespace
}  // namespace triax::test
