#include "core/fields.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace triax {
namespace {

enum class Colour { red, green };

struct Part {
  std::string path;
  double weight = 1.0;
  bool operator==(const Part&) const = default;
};
struct Sub {
  int count = 3;
  bool on = false;
  std::string mode = "fast";
  bool operator==(const Sub&) const = default;
};
struct Whole {
  std::string name = "x";
  int64_t size = 0;
  double rate = 0.5;
  int ranks = 0;
  std::string dir;
  Colour colour = Colour::red;
  std::array<double, 2> betas{0.9, 0.95};
  std::vector<int64_t> steps;
  std::vector<Part> parts;
  Sub sub;
  bool operator==(const Whole&) const = default;
};

const FieldTable<Part>& fields_of(const Part*) {
  static const FieldTable<Part> table = [] {
    FieldTable<Part> t;
    t.add("path", &Part::path, "A file.").must_be_given();
    t.add("weight", &Part::weight, "Its share.").above(0);
    return t;
  }();
  return table;
}
const FieldTable<Sub>& fields_of(const Sub*) {
  static const FieldTable<Sub> table = [] {
    FieldTable<Sub> t;
    t.add("count", &Sub::count, "How many.").at_least(1).at_most(10);
    t.add("on", &Sub::on, "Whether.");
    t.add("mode", &Sub::mode, "Which way.").one_of({"fast", "exact"});
    return t;
  }();
  return table;
}
const FieldTable<Whole>& fields_of(const Whole*) {
  static const FieldTable<Whole> table = [] {
    FieldTable<Whole> t;
    t.add("name", &Whole::name, "A name.");
    t.add("size", &Whole::size, "A size.").must_be_given().at_least(1);
    t.add("rate", &Whole::rate, "A rate.").at_least(0).below(1);
    t.add("ranks", &Whole::ranks, "Ranks.").zero_is("auto").at_least(1);
    t.add("dir", &Whole::dir, "A folder.").derived("<name>/dir");
    t.add("colour", &Whole::colour, "A colour.").one_of({"red", "green"});
    t.add("betas", &Whole::betas, "Two numbers.").at_least(0).below(1);
    t.add("steps", &Whole::steps, "Steps.").at_least(1);
    t.add("parts", &Whole::parts, "Parts.");
    t.add("sub", &Whole::sub, "A section.");
    return t;
  }();
  return table;
}

struct Reading {
  Whole whole;
  FieldReport report;
};
Reading read(const std::string& text, const std::vector<std::string>& sets = {}) {
  Reading r;
  ConfigNode root = parse_yaml(text, "job.yaml", r.report.problems);
  for (const std::string& s : sets) set_value(root, s, r.report.problems);
  read_fields(root, r.whole, r.report);
  return r;
}

// The only problem of a document.
std::string problem(const std::string& text, const std::vector<std::string>& sets = {}) {
  const Reading r = read(text, sets);
  EXPECT_EQ(r.report.problems.size(), 1u) << text;
  return r.report.problems.empty() ? "" : r.report.problems[0];
}

TEST(Fields, ReadsEveryType) {
  const Reading r = read(
      "name: 123\nsize: 7\nrate: 1e-3\nranks: 4\ndir: /a b\ncolour: green\nbetas: [0, 0.5]\nsteps: [1, 20]\n"
      "parts:\n  - {path: a.txt}\n  - path: b.txt\n    weight: 2\nsub:\n  count: 10\n  on: true\n  mode: "
      "exact\n");
  EXPECT_TRUE(r.report.problems.empty()) << r.report.problems[0];
  const Whole expected{"123",
                       7,
                       1e-3,
                       4,
                       "/a b",
                       Colour::green,
                       {0, 0.5},
                       {1, 20},
                       {{"a.txt", 1}, {"b.txt", 2}},
                       {10, true, "exact"}};
  EXPECT_EQ(r.whole, expected);
  EXPECT_TRUE(r.report.has("sub.count"));
  EXPECT_TRUE(r.report.has("parts[1].weight"));
  EXPECT_FALSE(r.report.has("parts[0].weight"));
}

TEST(Fields, DefaultsAutoAndNull) {
  const Reading r = read("size: 1\nranks: auto\ndir: null\nsub:\n");
  EXPECT_TRUE(r.report.problems.empty());
  Whole expected;
  expected.size = 1;
  EXPECT_EQ(r.whole, expected);
  EXPECT_FALSE(r.report.has("dir"));
  EXPECT_TRUE(r.report.has("ranks"));
}

TEST(Fields, WrongTypesSayWhatWasExpectedAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"size: \"1\"", "job.yaml:1: size: expected a whole number of at least 1, got the text \"1\""},
      {"size: many", "job.yaml:1: size: expected a whole number of at least 1, got many"},
      {"size: 1.5", "job.yaml:1: size: expected a whole number of at least 1, got 1.5"},
      {"size: 1e3", "job.yaml:1: size: expected a whole number of at least 1, got 1e3"},
      {"size:", "job.yaml:1: size: expected a whole number of at least 1, got nothing"},
      {"size: [1]", "job.yaml:1: size: expected a whole number of at least 1, got a list"},
      {"size: 0", "job.yaml:1: size: 0 is out of range; expected a whole number of at least 1"},
      {"size: 99999999999999999999", "job.yaml:1: size: 99999999999999999999 is out of range; expected"},
      {"size: 1\nranks: 99999999999", "job.yaml:2: ranks: 99999999999 is out of range; expected auto or"},
      {"size: 1\nranks: all", "job.yaml:2: ranks: expected auto or a whole number of at least 1, got all"},
      {"size: 1\nranks: 0", "job.yaml:2: ranks: 0 is out of range"},
      {"size: 1\nrate: fast", "job.yaml:2: rate: expected a number of at least 0 and below 1, got fast"},
      {"size: 1\nrate: .nan", "job.yaml:2: rate: expected a number"},
      {"size: 1\nrate: inf", "job.yaml:2: rate: expected a number"},
      {"size: 1\nrate: 1.0",
       "job.yaml:2: rate: 1.0 is out of range; expected a number of at least 0 and below 1"},
      {"size: 1\nrate: 1e999", "job.yaml:2: rate: 1e999 is out of range"},
      {"size: 1\nname: [a]", "job.yaml:2: name: expected a text, got a list"},
      {"size: 1\nname: ''", "job.yaml:2: name: expected a text, got the text \"\""},
      {"size: 1\ncolour: gren",
       "job.yaml:2: colour: expected one of red, green, got gren; did you mean green?"},
      {"size: 1\nbetas: [0.9]", "job.yaml:2: betas: expected a list of 2"},
      {"size: 1\nsteps: 3",
       "job.yaml:2: steps: expected a list of items, each a whole number of at least 1, got 3"},
      {"size: 1\nsteps: [1, 0]", "job.yaml:2: steps[1]: 0 is out of range"},
      {"size: 1\nsub: 3", "job.yaml:2: sub: expected a mapping with the keys count, on, mode, got 3"},
      {"size: 1\nsub:\n  on: yes", "job.yaml:3: sub.on: expected true or false, got yes"},
      {"size: 1\nsub:\n  on: 'true'", "job.yaml:3: sub.on: expected true or false, got the text \"true\""},
      {"size: 1\nparts: [{weight: 2}]", "parts[0].path: missing; expected a text (A file.)"},
      {"name: y", "size: missing; expected a whole number of at least 1 (A size.)"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(problem(text).substr(0, std::string(expected).size()), expected) << text;
}

TEST(Fields, UnknownKeysNameTheNearest) {
  const std::pair<const char*, const char*> cases[] = {
      {"size: 1\nnmae: y", "job.yaml:2: nmae: unknown key; the nearest known key is name"},
      {"size: 1\nsub: {cuont: 3}", "job.yaml:2: sub.cuont: unknown key; the nearest known key is sub.count"},
      {"size: 1\ncount: 3", "job.yaml:2: count: unknown key; the nearest known key is sub.count"},
      {"size: 1\nparts: [{path: a, wieght: 3}]",
       "job.yaml:2: parts[0].wieght: unknown key; the nearest known key is parts[0].weight"},
      // None is near.
      {"size: 1\nsub: {resetpos: 3}",
       "job.yaml:2: sub.resetpos: unknown key; sub has the keys count, on, mode"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(problem(text), expected);
}

TEST(Fields, AllProblemsAtOnce) {
  const Reading r = read("nmae: y\nrate: 2\ncolour: blue\nsub: {count: 11, on: 1, what: 2}\nsteps: [a, b]\n");
  EXPECT_EQ(r.report.problems.size(), 9u);  // size is missing as well
  for (const char* bad : {"size", "rate", "colour", "sub.count", "sub.on", "steps"})
    EXPECT_EQ(r.report.bad.count(bad), 1u) << bad;
}

TEST(Fields, RoundTripsExactly) {
  const double awkward[] = {0.1,
                            1.0 / 3,
                            1e-5,
                            3e-4,
                            5e-324,
                            123456789.123456789,
                            1e22,
                            0.0,
                            1e15,
                            2.5e-10,
                            std::nextafter(1.0, 0.0)};
  for (const double rate : awkward) {
    Whole whole;
    whole.size = std::numeric_limits<int64_t>::max();
    whole.betas = {rate < 1 ? rate : 0.5, 0.1};
    whole.parts = {{"/a path/with: odd #signs", rate > 0 ? rate : 1},
                   {"tab\there \"quoted\" \\ \xc3\xa9", 2}};
    for (const char* name :
         {"true", "null", "12", "1e5", "y", "~", "- x", "a: b", "2026-11-21", "1:30", "plain"}) {
      whole.name = name;
      const ConfigNode node = write_fields(whole);
      for (const std::string& text : {to_yaml(node), to_json(node)}) {
        const Reading r = read(text);
        EXPECT_TRUE(r.report.problems.empty()) << text << r.report.problems[0];
        EXPECT_EQ(r.whole, whole) << text;
      }
    }
  }
}

TEST(Fields, ShortestDigits) {
  EXPECT_EQ(shortest(3e-4), "3.0e-04");  // with a point: YAML 1.1 takes 3e-04 for a text
  EXPECT_EQ(shortest(0.003), "0.003");
  EXPECT_EQ(shortest(10000), "10000.0");
  EXPECT_EQ(shortest(0.1), "0.1");
}

TEST(Fields, SchemaDescribesEveryField) {
  const auto schema = nlohmann::json::parse(to_json(schema_of<Whole>("test")));
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["required"], nlohmann::json({"size"}));
  const auto& p = schema["properties"];
  EXPECT_EQ(p["size"]["minimum"], 1);
  EXPECT_EQ(p["size"]["description"], "A size.");
  EXPECT_EQ(p["rate"]["exclusiveMaximum"], 1);
  EXPECT_EQ(p["rate"]["default"], 0.5);
  EXPECT_EQ(p["ranks"]["anyOf"][1]["const"], "auto");
  EXPECT_EQ(p["ranks"]["default"], "auto");
  EXPECT_EQ(p["dir"]["anyOf"][1]["type"], "null");
  EXPECT_EQ(p["colour"]["enum"], nlohmann::json({"red", "green"}));
  EXPECT_EQ(p["betas"]["minItems"], 2);
  EXPECT_EQ(p["parts"]["items"]["required"], nlohmann::json({"path"}));
  EXPECT_EQ(p["sub"]["properties"]["on"]["type"], "boolean");
}

TEST(ConfigTree, OverlaysMergeMappingsAndReplaceTheRest) {
  std::vector<std::string> problems;
  ConfigNode base = parse_yaml("a: {x: 1, w: 2}\nlist: [1, 2]\nkeep: 5", "base.yaml", problems);
  merge(base, parse_yaml("a: {w: 3, z: 4}\nlist: [9]", "over.yaml", problems));
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(to_yaml(base), "a:\n  x: 1\n  w: 3\n  z: 4\nlist: [9]\nkeep: 5\n");
  EXPECT_EQ(to_string(base.find("a")->find("w")->origin), "over.yaml:1");
  EXPECT_EQ(to_string(base.find("keep")->origin), "base.yaml:3");
}

TEST(ConfigTree, SetsReachAnywhere) {
  const Reading r = read("size: 1\nparts: [{path: a}]\n", {"size=5", "sub.count=7", "parts.0.weight=3",
                                                           "steps=[4, 5]", "name=a=b", "sub.mode=exact"});
  EXPECT_TRUE(r.report.problems.empty()) << r.report.problems[0];
  EXPECT_EQ(r.whole.size, 5);
  EXPECT_EQ(r.whole.sub.count, 7);
  EXPECT_EQ(r.whole.sub.mode, "exact");
  EXPECT_EQ(r.whole.parts[0].weight, 3);
  EXPECT_EQ(r.whole.steps, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(r.whole.name, "a=b");
}

TEST(ConfigTree, WrongSetsAreNamed) {
  EXPECT_EQ(problem("size: 1", {"size"}), "--set size: write --set section.key=value");
  EXPECT_EQ(problem("size: 1", {"=3"}), "--set =3: write --set section.key=value");
  EXPECT_EQ(problem("size: 1", {"sub..on=3"}),
            "--set sub..on=3: an empty key; write --set section.key=value");
  EXPECT_EQ(problem("size: 1\nparts: [{path: a}]", {"parts.1.path=b"}),
            "--set parts.1.path=b: '1' is not one of the list's items 0 .. 0");
  EXPECT_EQ(problem("size: 1", {"rate=x"}),
            "--set rate=x: rate: expected a number of at least 0 and below 1, got x");
  EXPECT_NE(problem("size: 1", {"steps=[1"}).find("--set steps=[1: not valid YAML"), std::string::npos);
}

TEST(ConfigTree, BrokenDocuments) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "job.yaml: is empty"},
      {"# only a comment\n", "job.yaml: is empty"},
      {"[1, 2]", "job.yaml: is a list"},
      {"hello", "job.yaml: is a single value"},
      {"a: 1\n---\nb: 2\n", "job.yaml: has 2 YAML documents"},
      {"a: 1\nb: [1, 2\n", "job.yaml:3:1: not valid YAML"},
      {"a: b: c", "job.yaml:1:5: not valid YAML"},
      {"a: 1\n\tb: 2", "job.yaml:2:"},
      {"a: 1\nb: 2\na: 3\n", "job.yaml:3: a is given twice, first in line 1"},
      {"s:\n  a: 1\n  a: 2\n", "job.yaml:3: s.a is given twice, first in line 2"},
      {"[1]: 2\n", "job.yaml:1: a key must be a plain word"},
      {"a: &a [*a]\n", "job.yaml:1: too many or too deeply nested"},
      {"a: *nowhere\n", "job.yaml:1:"},
  };
  for (const auto& [text, expected] : cases) {
    std::vector<std::string> problems;
    parse_yaml(text, "job.yaml", problems);
    ASSERT_EQ(problems.size(), 1u) << text;
    EXPECT_EQ(problems[0].substr(0, std::string(expected).size()), expected) << text;
  }
}

TEST(ConfigTree, AnchorsAndAliases) {
  std::vector<std::string> problems;
  const ConfigNode node = parse_yaml("a: &x {b: 1}\nc: *x\n", "job.yaml", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(to_yaml(node), "a:\n  b: 1\nc:\n  b: 1\n");
}

TEST(ConfigTree, EditDistance) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("stpes", "steps"), 1);  // neighbours swapped
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

}  // namespace
}  // namespace triax
