// `triax tokenize` as users call it: memory, signals, exit statuses.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace triax {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

const std::string tokenizer = TRIAX_SOURCE_DIR "/tests/golden/tokenizers/llama3.json";

std::string content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TokenizeCommand : public ::testing::Test {
 protected:
  TokenizeCommand() : dir_(fs::temp_directory_path() / ("triax-tokenize-" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~TokenizeCommand() override { fs::remove_all(dir_); }

  // JSON lines of about so many megabytes, no two alike.
  void write_lines(const std::string& name, int megabytes) {
    std::ofstream out(dir_ / name);
    std::mt19937 random(5);
    std::string line;
    for (int64_t bytes = 0; bytes < int64_t{megabytes} << 20; bytes += static_cast<int64_t>(line.size())) {
      line = "{\"text\": \"";
      for (int i = 0; i < 60; ++i) line += std::to_string(random() % 100000) + (i % 7 ? " and " : ".\\n");
      out << (line += "\"}\n");
    }
  }
  // A child of this process, limited to `bytes` of address space unless 0.
  pid_t start(std::vector<std::string> arguments, rlim_t bytes = 0) {
    const std::string program = std::string(TRIAX_BINARY_DIR) + "/triax";
    arguments.insert(arguments.begin(), {program, "tokenize"});
    const pid_t child = fork();
    if (child != 0) return child;
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    if (bytes) {
      const rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_AS, &limit);
    }
    if (chdir(dir_.c_str()) != 0 || !freopen("out", "w", stdout) || !freopen("err", "w", stderr)) _exit(126);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  int finish(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int run(const std::vector<std::string>& arguments, rlim_t bytes = 0) {
    return finish(start(arguments, bytes));
  }
  std::string told(const char* file = "err") const { return content(dir_ / file); }

  fs::path dir_;
};

TEST_F(TokenizeCommand, FromTextToTokensAndBack) {
  std::ofstream(dir_ / "a.txt") << "Hello, <|endoftext|> world\n";
  std::ofstream(dir_ / "b.txt") << "second\n";
  ASSERT_EQ(run({"*.txt", "--tokenizer", tokenizer, "--output", "out", "--workers", "2"}), 0) << told();
  EXPECT_NE(told("out").find("2 documents"), std::string::npos) << told("out");
  ASSERT_EQ(run({"show", "out", "--tokenizer", tokenizer}), 0) << told();
  EXPECT_NE(told("out").find("Hello, <|endoftext|> world\n<|endoftext|>second\n<|endoftext|>\n"),
            std::string::npos)
      << told("out");
  EXPECT_EQ(run({"*.txt", "--tokenizer", tokenizer, "--output", "out"}), 2) << "there already";
  EXPECT_EQ(run({"*.none", "--output", "other"}), 2);
  EXPECT_EQ(run({"a.txt", "--output", "q.bin"}), 2);
  EXPECT_NE(told().find("write --output q"), std::string::npos) << told();
  EXPECT_EQ(run({"a.txt"}), 2);
  EXPECT_EQ(run({"a.txt", "--output", "x", "--tokenizer", "missing.json"}), 2);
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"--help"}, {"train", "--help"}, {"show", "--help"}}) {
    EXPECT_EQ(run(command), 0);
    EXPECT_NE(told("out").find("Example:\n  triax tokenize"), std::string::npos) << told("out");
  }
}

TEST_F(TokenizeCommand, ATokenizerIsTrainedAndUsed) {
  EXPECT_EQ(run({"train", "missing.txt", "--output", "q9"}), 2);
  EXPECT_NE(told().find("write --output q9.model"), std::string::npos)
      << "before anything is read: " << told();
  {
    std::ofstream text(dir_ / "a.txt");
    for (int i = 0; i < 500; ++i) text << "a line of words, number " << i * i << "\n";
  }
  ASSERT_EQ(run({"train", "a.txt", "--vocab-size", "320", "--output", "t.model"}), 0) << told();
  ASSERT_EQ(run({"a.txt", "--tokenizer", "t.model", "--output", "out", "--format", "llmc"}), 0) << told();
  ASSERT_EQ(run({"show", "out.bin", "--tokenizer", "t.model", "--count", "1000000"}), 0) << told();
  EXPECT_NE(told("out").find(content(dir_ / "a.txt")), std::string::npos);
}

// Killed at random moments and repeated: the same bytes as without.
TEST_F(TokenizeCommand, KilledAndRepeatedGivesTheSameBytes) {
  write_lines("a.jsonl", 5);
  const auto arguments = [&](const std::string& output) {
    return std::vector<std::string>{"a.jsonl", "--tokenizer", tokenizer, "--output",
                                    output,    "--workers",   "1"};
  };
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run(arguments("whole")), 0) << told();
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 6; ++round) {
    const pid_t child = start(arguments("parts"));
    std::this_thread::sleep_for(took * (random() % 1000) / 1000);
    kill(child, SIGKILL);
    if (finish(child) == 0) break;
    // Half a file is never taken for a whole one.
    EXPECT_TRUE(!fs::exists(dir_ / "parts.idx") || fs::exists(dir_ / "parts.bin"));
  }
  if (!fs::exists(dir_ / "parts.idx")) {
    ASSERT_EQ(run(arguments("parts")), 0) << told();
  }
  for (const char* end : {".bin", ".idx"})
    EXPECT_TRUE(content(dir_ / ("whole" + std::string(end))) == content(dir_ / ("parts" + std::string(end))))
        << end;
}

TEST_F(TokenizeCommand, AnInterruptKeepsTheStateAndLeavesNothingHalfValid) {
  write_lines("a.jsonl", 24);
  const std::vector<std::string> arguments{"a.jsonl", "--tokenizer", tokenizer, "--output",
                                           "out",     "--workers",   "1"};
  const pid_t child = start(arguments);
  for (int i = 0; i < 2000 && !fs::exists(dir_ / "out.bin.part"); ++i) std::this_thread::sleep_for(5ms);
  kill(child, SIGINT);
  ASSERT_EQ(finish(child), 130) << told();
  EXPECT_NE(told().find("the same command goes on from there"), std::string::npos) << told();
  EXPECT_FALSE(fs::exists(dir_ / "out.bin"));
  EXPECT_FALSE(fs::exists(dir_ / "out.idx"));
  EXPECT_TRUE(fs::exists(dir_ / "out.state.json"));
  fs::remove(dir_ / "out.bin.part");
  ASSERT_EQ(run(arguments), 0) << told();
  EXPECT_NE(told().find("out.bin.part is gone: beginning anew"), std::string::npos) << told();
  EXPECT_FALSE(fs::exists(dir_ / "out.state.json"));
}

// A text of 160 MB in an address space of 128 MiB, program and libraries included.
TEST_F(TokenizeCommand, FilesLargerThanMemoryPassThrough) {
  write_lines("a.txt", 4);
  {
    const std::string part = content(dir_ / "a.txt");
    std::ofstream out(dir_ / "large.txt", std::ios::binary);
    for (int i = 0; i < 38; ++i) out << part;
  }
  ASSERT_EQ(run({"large.txt", "--output", "out", "--workers", "1"}, rlim_t{128} << 20), 0) << told();
  EXPECT_EQ(fs::file_size(dir_ / "out.bin"), 2 * (fs::file_size(dir_ / "large.txt") + 1));
}

// Every command of docs/data.md, a tokenizer being trained first.
TEST_F(TokenizeCommand, ThePagesExamplesRun) {
  {
    std::ofstream text(dir_ / "corpus.txt");
    std::mt19937 random(9);
    for (int word = 0; word < 25000; ++word) {
      for (int letters = 2 + static_cast<int>(random() % 6); letters > 0; --letters)
        text << static_cast<char>('a' + random() % 26);
      text << (word % 8 ? " " : "\n");
    }
  }
  fs::create_directories(dir_ / "web");
  fs::create_directories(dir_ / "llama3");
  std::ofstream(dir_ / "web/a.jsonl") << "{\"text\": \"a document\"}\n";
  fs::copy(tokenizer, dir_ / "llama3/tokenizer.json");
  std::vector<std::string> commands;
  std::ifstream page(TRIAX_SOURCE_DIR "/docs/data.md");
  for (std::string line; std::getline(page, line);)
    if (line.rfind("    triax tokenize ", 0) == 0)
      commands.insert(line.find(" train ") == line.npos ? commands.end() : commands.begin(), line.substr(10));
  ASSERT_EQ(commands.size(), 5u);
  for (std::string& command : commands) {
    if (command.find(" --output corpus") != command.npos && command.find("train") == command.npos)
      command += " --overwrite";
    EXPECT_EQ(
        std::system(
            ("cd " + dir_.string() + " && " TRIAX_BINARY_DIR "/triax " + command + " >out 2>err").c_str()),
        0)
        << command << told();
  }
}

}  // namespace
}  // namespace triax
