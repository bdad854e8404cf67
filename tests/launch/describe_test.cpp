// What the program says of itself: drafts, manual, reference, completions, schema.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "support/python.h"

namespace triax {
namespace {

namespace fs = std::filesystem;

class DescribeTest : public ::testing::Test {
 protected:
  DescribeTest() : dir_(fs::temp_directory_path() / ("triax-describe-" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~DescribeTest() override { fs::remove_all(dir_); }

  // Runs a line of shell in the test's folder, `triax` being the program; both outputs in *text.
  int shell(const std::string& line, std::string* text = nullptr) const {
    const std::string all =
        "cd " + dir_.string() + " && PATH=" TRIAX_BINARY_DIR ":$PATH && { " + line + "\n} >all.out 2>&1";
    const int status = std::system(all.c_str());
    if (text) *text = read(dir_ / "all.out");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string said(const std::string& line) const {
    std::string text;
    EXPECT_EQ(shell(line, &text), 0) << line << "\n" << text;
    return text;
  }
  bool have(const std::string& program) const { return shell("command -v " + program) == 0; }
  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::vector<std::string> commands() const {
    const std::string page = said("triax reference");
    std::vector<std::string> list;
    const std::regex heading("### `(triax [^`]+)`");
    for (std::sregex_iterator it(page.begin(), page.end(), heading), end; it != end; ++it)
      list.push_back((*it)[1]);
    return list;
  }

  fs::path dir_;
};

TEST_F(DescribeTest, InitWritesAJobThatPlansAndNeverWritesOverOne) {
  std::string out;
  EXPECT_EQ(shell("triax init --for llama --size 1b --ranks 16 --device a100", &out), 0) << out;
  EXPECT_EQ(shell("triax plan job.yaml --ranks 16 --device a100", &out), 0) << out;
  EXPECT_NE(out.find(" GiB fit\n"), std::string::npos) << out;
  EXPECT_NE(out.find("train.txt is not here: a plan needs no data"), std::string::npos) << out;
  EXPECT_EQ(shell("triax train job.yaml --ranks 16", &out), 2) << "training needs data";
  const std::string before = read(dir_ / "job.yaml");
  EXPECT_EQ(shell("triax init", &out), 2);
  EXPECT_NE(out.find("--force"), std::string::npos) << out;
  EXPECT_EQ(read(dir_ / "job.yaml"), before);
  EXPECT_EQ(shell("triax init --force --data some.bin more.bin", &out), 0) << out;
  EXPECT_NE(read(dir_ / "job.yaml").find("path: more.bin"), std::string::npos);
  EXPECT_EQ(shell("triax init --size 3b --output x.yaml", &out), 2);
  EXPECT_EQ(shell("triax init --device v100 --output x.yaml", &out), 2);
  EXPECT_FALSE(fs::exists(dir_ / "x.yaml"));
}

TEST_F(DescribeTest, EveryCommandHasHelpWithAnExample) {
  const std::vector<std::string> all = commands();
  EXPECT_GT(all.size(), 20u);
  for (const std::string& command : all)
    EXPECT_NE(said(command + " --help").find("Example:\n  "), std::string::npos) << command;
}

TEST_F(DescribeTest, TheManualHasEveryCommandAndNoErrors) {
  const std::string page = said("triax man");
  for (const std::string& command : commands())
    EXPECT_NE(page.find(".SS \"" + std::regex_replace(command, std::regex("-"), "\\-") + "\""),
              std::string::npos)
        << command;
  if (!have("man") || !have("groff")) GTEST_SKIP() << "no man here to format it";
  EXPECT_EQ(said("triax man >triax.1 && MANWIDTH=100 man --warnings -l triax.1 2>&1 >text"), "");
  EXPECT_NE(read(dir_ / "text").find("EXIT STATUS"), std::string::npos);
}

TEST_F(DescribeTest, BashCompletesCommandsOptionsAndKeys) {
  const auto completed = [&](const std::string& words) {
    return said("cat >try.sh <<'END'\neval \"$(triax completion bash)\"\ncompopt() { :; }\nCOMP_WORDS=(" +
                words +
                ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\ncomplete -p triax\n_triax\nprintf '%s\\n' "
                "\"${COMPREPLY[@]}\"\nEND\nbash try.sh");
  };
  EXPECT_EQ(completed("triax checkp"), "complete -F _triax triax\ncheckpoint\n");
  EXPECT_EQ(completed("triax checkpoint insp"), "complete -F _triax triax\ninspect\n");
  EXPECT_EQ(completed("triax train job.yaml --accept"), "complete -F _triax triax\n--accept-changes\n");
  EXPECT_EQ(completed("triax --set x=1 train --set model.hidden_s"),
            "complete -F _triax triax\nmodel.hidden_size=\n");
  EXPECT_EQ(completed("triax train jo"), "complete -F _triax triax\n\n") << "files are bash's own business";
  EXPECT_EQ(completed("triax checkpoint prune --tens"), "complete -F _triax triax\n\n");
  std::ofstream(dir_ / "tra 1.txt") << "x";
  EXPECT_EQ(completed("triax tokenize tra"), "complete -F _triax triax\ntrain\ntra 1.txt\n");
  EXPECT_EQ(completed("triax checkpoint tra"), "complete -F _triax triax\n\n") << "takes no files";
}

TEST_F(DescribeTest, FishAndZshComplete) {
  if (have("zsh")) {
    EXPECT_EQ(said("triax completion zsh >_triax && zsh -n _triax"), "");
    EXPECT_NE(read(dir_ / "_triax").find("'1:command or file:{ _describe command below; _files }'"),
              std::string::npos);
  }
  if (!have("fish")) GTEST_SKIP() << "no fish here";
  const auto completed = [&](const std::string& line) {
    return said("export HOME=$PWD; triax completion fish >t.fish && fish -c 'source t.fish; complete -C \"" +
                line + "\"'");
  };
  EXPECT_EQ(completed("triax checkpoint insp").rfind("inspect\t", 0), 0u);
  EXPECT_EQ(completed("triax train --accept").rfind("--accept-changes\t", 0), 0u);
  EXPECT_EQ(completed("triax train --set model.hidden_s").rfind("model.hidden_size=", 0), 0u);
  std::ofstream(dir_ / "tr1.txt") << "x";
  const std::string both = completed("triax tokenize tr");
  EXPECT_NE(both.find("train\t"), std::string::npos) << both;
  EXPECT_NE(both.find("tr1.txt"), std::string::npos) << both;
  EXPECT_EQ(completed("triax checkpoint tr"), "");
}

TEST_F(DescribeTest, AnUnknownShellIsRefused) {
  std::string out;
  EXPECT_EQ(shell("triax completion tcsh", &out), 2);
  EXPECT_NE(out.find("it can be bash, zsh or fish"), std::string::npos) << out;
}

// With another validator and another reader of YAML: examples are good, and each key with a value of a wrong
// type, out of its limits or under a wrong name is not.
class FullSchemaTest : public DescribeTest {};

TEST_F(FullSchemaTest, AcceptsTheExamplesAndRejectsWhatTheProgramRejects) {
  std::string why;
  const std::string python = test::python_with("jsonschema pyyaml", &why);
  if (python.empty()) GTEST_SKIP() << why;
  said("triax schema >schema.json && triax init --output drafted.yaml --for llama --size 124m");
  std::ofstream(dir_ / "check.py") << R"(
import copy, glob, json, re, sys, yaml, jsonschema
schema = json.load(open("schema.json"))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
files = ["drafted.yaml"] + [f for f in glob.glob(sys.argv[1] + "/examples/*.yaml") if "model:" in open(f).read()]
assert len(files) > 1
for f in files:
    errors = [e.message for e in validator.iter_errors(yaml.safe_load(open(f)))]
    assert not errors, (f, errors)
good = yaml.safe_load(open("drafted.yaml"))
assert good["parallel"]["data"] == "auto" and good["output_dir"] is None
wrong = tried = 0
def refuse(path, value):
    global wrong, tried
    job = copy.deepcopy(good)
    at = job
    for key in path[:-1]: at = at[key]
    at[path[-1]] = value
    tried += 1
    if validator.is_valid(job):
        wrong += 1
        print("accepted:", path, value)
def walk(properties, path):
    for key, p in properties.items():
        assert p["description"], path + [key]
        if "properties" in p:
            refuse(path + [key], 7)
            walk(p["properties"], path + [key])
            continue
        refuse(path + [key], {"no": "mapping"})
        refuse(path + [key + "x"], 1)
        kind = p.get("type") or (p["anyOf"][0].get("type") if "anyOf" in p else None)
        limits = p if "anyOf" not in p else p["anyOf"][0]
        if kind in ("integer", "number", "boolean"): refuse(path + [key], "text")
        if kind == "integer": refuse(path + [key], 1.5)
        if "minimum" in limits and kind != "array": refuse(path + [key], limits["minimum"] - 1)
        if "exclusiveMinimum" in limits: refuse(path + [key], limits["exclusiveMinimum"])
        if "maximum" in limits: refuse(path + [key], limits["maximum"] + 1)
        if "enum" in limits: refuse(path + [key], "no-such-word")
        assert "default" in p or "Default:" in p["description"] or key in ("vocab_size", "hidden_size",
          "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings", "steps",
          "global_batch_size", "micro_batch_size", "train"), path + [key]
walk(schema["properties"], [])
for path in (["model", "hidden_size"], ["training", "steps"], ["data", "train"]):
    job = copy.deepcopy(good); at = job
    for key in path[:-1]: at = at[key]
    del at[path[-1]]
    tried += 1
    assert not validator.is_valid(job), path
print(tried, "wrong jobs,", wrong, "accepted")
sys.exit(wrong != 0 or tried < 150)
)";
  std::string out;
  EXPECT_EQ(shell(python + " check.py " TRIAX_SOURCE_DIR, &out), 0) << out;
}

}  // namespace
}  // namespace triax
