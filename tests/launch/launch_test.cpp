// What `triax launch` decides, without starting anything.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/error.h"
#include "launch/banners.h"
#include "launch/commands.h"
#include "launch/first_cause.h"
#include "launch/hosts.h"
#include "launch/launch_command.h"
#include "launch/placement.h"
#include "launch/restart_policy.h"
#include "launch/slurm.h"

namespace triax {
namespace {

using namespace std::chrono_literals;

// The words of the usage error that `body` throws.
template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "nothing was refused";
}

RunConfig job(int tensor, int pipeline, int data) {
  RunConfig config;
  config.model.num_attention_heads = config.model.num_key_value_heads = 8;
  config.model.intermediate_size = 64;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = data;
  config.training.global_batch_size = 48;
  config.training.micro_batch_size = 4;
  return config;
}

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& word : list) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(Hosts, AreReadFromAListAndFromAFile) {
  const std::vector<Host> two{{"a", 8}, {"b", 4}};
  EXPECT_EQ(parse_hosts("a:8,b:4"), two);
  EXPECT_EQ(parse_hosts("a:3,b:4,a:5"), two);
  EXPECT_EQ(parse_hostfile("# the cluster\n a slots=8 max_slots=16 # fast\n\nb:4\n", "hosts"), two);
  EXPECT_EQ(parse_hosts("a"), (std::vector<Host>{{"a", 0}}));
  EXPECT_EQ(parse_hostfile("a\na\n", "hosts"), (std::vector<Host>{{"a", 2}}));  // as mpirun counts them
}

TEST(Hosts, AFileOfNothingIsToldFromAMissingOne) {
  const auto path = std::filesystem::temp_directory_path() / ("triax-hosts-" + std::to_string(getpid()));
  EXPECT_NE(refusal([&] { read_hostfile(path); }).find("No such file"), std::string::npos);
  { const std::ofstream empty(path); }
  EXPECT_NE(refusal([&] { read_hostfile(path); }).find("names no host"), std::string::npos);
  std::filesystem::remove(path);
}

TEST(Hosts, WhatIsNoHostIsRefusedWithItsPlace) {
  EXPECT_NE(refusal([] { parse_hosts("a:8,,b"); }).find("'' is no host"), std::string::npos);
  EXPECT_NE(refusal([] { parse_hosts("a:0"); }).find("'a:0'"), std::string::npos);
  EXPECT_NE(refusal([] { parse_hostfile("a slots=8\nb slot=8\n", "my-hosts"); }).find("my-hosts:2: 'slot=8'"),
            std::string::npos);
  EXPECT_NE(refusal([] { parse_hostfile("# none\n", "my-hosts"); }).find("names no host"), std::string::npos);
  EXPECT_NE(refusal([] { read_hostfile("/nowhere/hosts"); }).find("No such file"), std::string::npos);
}

TEST(Hosts, SlurmsNotation) {
  EXPECT_EQ(words(expand_hostlist("gpu[01-03,7],login")), "gpu01 gpu02 gpu03 gpu7 login");
  EXPECT_EQ(words(expand_hostlist("r[1-2]n[8-9]x")), "r1n8x r1n9x r2n8x r2n9x");
  EXPECT_EQ(expand_counts("8(x2),4"), (std::vector<int>{8, 8, 4}));
  EXPECT_NE(refusal([] { expand_hostlist("gpu[1-"); }).find("bracket"), std::string::npos);
  EXPECT_NE(refusal([] { expand_counts("8(x"); }).find("counts"), std::string::npos);
}

TEST(Hosts, AnAllocationOfSlurm) {
  const char* const names[] = {"SLURM_JOB_ID",          "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE",
                               "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS",       "SLURM_JOB_CPUS_PER_NODE"};
  for (const char* name : names) unsetenv(name);
  EXPECT_TRUE(slurm_allocation().empty());
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_JOB_NODELIST", "n[1-3]", 1);
  setenv("SLURM_TASKS_PER_NODE", "1(x3)", 1);
  setenv("SLURM_JOB_CPUS_PER_NODE", "16(x2),8", 1);
  EXPECT_EQ(slurm_allocation(), (std::vector<Host>{{"n1", 16}, {"n2", 16}, {"n3", 8}}));
  setenv("SLURM_TASKS_PER_NODE", "4(x2),2", 1);
  setenv("SLURM_NTASKS", "10", 1);
  EXPECT_EQ(slurm_allocation(), (std::vector<Host>{{"n1", 4}, {"n2", 4}, {"n3", 2}}));
  setenv("SLURM_TASKS_PER_NODE", "4", 1);
  EXPECT_NE(refusal([] { slurm_allocation(); }).find("3 nodes"), std::string::npos);

  // What of the machine is the allocation's: cores that a rank may be bound to.
  const auto own = [](const char* processors, NodeTopology node) {
    setenv("SLURM_JOB_CPUS_PER_NODE", processors, 1);
    const NodeTopology t = within_allocation(node);
    return fmt::format("{} cores, {} domains, {} threads", t.cores, t.domains, t.threads_per_core);
  };
  EXPECT_EQ(own("128(x2)", {64, 2, 2}), "64 cores, 2 domains, 2 threads");
  EXPECT_EQ(own("16(x2),8", {64, 2, 2}), "4 cores, 1 domains, 2 threads");
  EXPECT_EQ(own("1", {64, 2, 2}), "1 cores, 1 domains, 1 threads");
  for (const char* name : names) unsetenv(name);
}

TEST(Hosts, ThisOneIsKnownByItsNames) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
  EXPECT_FALSE(is_this_host("192.0.2.1"));  // of no machine (RFC 5737)
}

TEST(Binding, RanksShareCoresWithoutStraddlingMemoryDomains) {
  const auto cores = [](NodeTopology node, int ranks) { return choose_binding(node, ranks).cores_per_rank; };
  EXPECT_EQ(cores({16, 1}, 4), 4);
  EXPECT_EQ(cores({16, 1}, 5),
            2);  // 3 does not divide 16: the sixth rank's would straddle nothing, but 3 x 5 = 15
  EXPECT_EQ(cores({12, 2}, 3), 3);  // 4 would put the second rank on both domains of 6
  EXPECT_EQ(cores({12, 2}, 1), 12);
  EXPECT_EQ(cores({64, 8}, 4), 16);  // two whole domains
  EXPECT_EQ(cores({64, 8}, 3), 16);
  EXPECT_EQ(cores({2, 1}, 2), 1);
  EXPECT_TRUE(choose_binding({2, 1}, 2).bound);
  EXPECT_FALSE(choose_binding({2, 1}, 3).bound);
  // Whatever the machine: blocks of cores in a row neither overlap nor lie in two domains in part.
  for (int domains = 1; domains <= 8; ++domains)
    for (int per_domain = 1; per_domain <= 12; ++per_domain)
      for (int ranks = 1; ranks <= domains * per_domain; ++ranks) {
        const int t = cores({domains * per_domain, domains}, ranks);
        ASSERT_LE(t * ranks, domains * per_domain);
        for (int r = 0; r < ranks; ++r) {
          const int first = r * t / per_domain, last = (r * t + t - 1) / per_domain;
          ASSERT_TRUE(first == last || (r * t % per_domain == 0 && t % per_domain == 0))
              << domains << " x " << per_domain << ", " << ranks << " ranks";
        }
      }
  EXPECT_GE(read_topology().cores, 1);
}

TEST(RankPlacement, TensorGroupsStayInsideHosts) {
  EXPECT_EQ(place(job(2, 2, 2), {{"a", 4}, {"b", 4}}, 1).hosts, (std::vector<Host>{{"a", 4}, {"b", 4}}));
  // A slot that only half a group would get stays empty.
  EXPECT_EQ(place(job(2, 2, 1), {{"a", 3}, {"b", 3}}, 1).hosts, (std::vector<Host>{{"a", 2}, {"b", 2}}));
  EXPECT_EQ(place(job(2, 1, 1), {{"a", 1}, {"b", 2}}, 1).hosts, (std::vector<Host>{{"b", 2}}));
  EXPECT_EQ(place(job(2, 1, 1), {{"a", 0}, {"b", 0}}, 2).hosts, (std::vector<Host>{{"a", 2}}));
}

TEST(RankPlacement, ASpreadTensorGroupIsRefusedByName) {
  const std::string text = refusal([] { place(job(4, 1, 2), {{"a", 6}, {"b", 2}}, 1); });
  EXPECT_NE(text.find("the tensor group of ranks 4 .. 7 would be spread over a .. b"), std::string::npos)
      << text;
  EXPECT_NE(text.find("tensor can be 1, 2"), std::string::npos) << text;
  EXPECT_NE(text.find("parallel.allow_tensor_across_nodes"), std::string::npos) << text;
  const std::string wide = refusal([] { place(job(8, 1, 1), {{"a", 2}, {"b", 4}, {"c", 2}}, 1); });
  EXPECT_NE(wide.find("ranks 0 .. 7 would be spread over a .. c"), std::string::npos) << wide;
  RunConfig allowed = job(4, 1, 2);
  allowed.parallel.allow_tensor_across_nodes = true;
  EXPECT_EQ(place(allowed, {{"a", 6}, {"b", 2}}, 1).hosts, (std::vector<Host>{{"a", 6}, {"b", 2}}));
  EXPECT_NE(refusal([] {
              place(job(2, 2, 2), {{"a", 4}, {"b", 2}}, 1);
            }).find("the hosts take 6 (a:4, b:2)"),
            std::string::npos);
}

// The truth is the definition: the first data degree from above that any micro-batch size makes whole.
TEST(Elastic, TakesTheLargestDataDegreeThatTheBatchAllows) {
  const auto any = [](const DataDegree&) { return true; };
  EXPECT_EQ(largest_data_degree(job(2, 2, 4), 15, any), (DataDegree{3, 4}));
  EXPECT_EQ(largest_data_degree(job(1, 1, 8), 7, any), (DataDegree{6, 4}));  // 7 does not divide 48
  EXPECT_EQ(largest_data_degree(job(1, 1, 16), 16, any),
            (DataDegree{16, 3}));  // micro-batches of 3 instead of 4
  EXPECT_EQ(largest_data_degree(job(2, 2, 4), 99, any), (DataDegree{4, 4}));
  EXPECT_EQ(largest_data_degree(job(2, 2, 4), 3, any), std::nullopt);
  // A rule of the job: an even number of micro-batches.
  const auto even = [](const DataDegree& d) { return 48 / (d.data * d.micro_batch_size) % 2 == 0; };
  EXPECT_EQ(largest_data_degree(job(1, 1, 8), 8, even), (DataDegree{8, 3}));
}

TEST(MpirunCommand, PlacesBindsAndPassesOn) {
  StartOptions options;
  const RankProgram program{"/opt/triax", {"job.yaml", "--set", "name=my run"}};
  const RankPlacement two{{{"a", 4}, {"b", 2}}};
  const std::string line = to_shell(mpirun_command(options, two, {16, 2, 2}, program));
  EXPECT_EQ(line,
            "mpirun -n 6 --host a:4,b:2 --map-by slot:PE=4 --bind-to core --mca plm_rsh_no_tree_spawn 1 "
            "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 "
            "/opt/triax train job.yaml --set 'name=my run' --set training.threads=4");
  options.agent = "/bin/my ssh";
  options.interfaces = "10.0.0.0/8";
  options.mca = {"btl=tcp,self"};
  options.mpirun_args = {"--report-bindings"};
  options.bind = BindChoice::never;
  const std::string more =
      to_shell(mpirun_command(options, two, {16, 2, 2}, {"/opt/triax", {"job.yaml"}, true}));
  for (const char* part : {"--map-by slot --bind-to none", "--mca plm_rsh_agent '/bin/my ssh'",
                           "--mca oob_tcp_if_include 10.0.0.0/8", "--mca btl_tcp_if_include 10.0.0.0/8",
                           "--mca btl tcp,self", "--report-bindings /opt/triax train job.yaml"})
    EXPECT_NE(more.find(part), std::string::npos) << part << "\n" << more;
  EXPECT_EQ(more.find("training.threads"), std::string::npos) << more;
  options.mca = {"btl"};
  EXPECT_NE(refusal([&] { mpirun_command(options, two, {}, program); }).find("KEY=VALUE"), std::string::npos);
}

TEST(SrunCommand, FillsTheAllocation) {
  const RankProgram program{"/opt/triax", {"job.yaml"}};
  EXPECT_EQ(
      to_shell(srun_command({}, {{{"n1", 4}, {"n2", 4}}}, {8, 1, 2}, program, "/run/hosts")),
      "srun --mpi=pmix --nodes=2 --ntasks=8 --ntasks-per-node=4 --nodelist=n1,n2 --distribution=block:block "
      "--cpus-per-task=4 --cpu-bind=cores --kill-on-bad-exit=1 --unbuffered /opt/triax train job.yaml --set "
      "training.threads=2");
  StartOptions options;
  options.mca = {"pml ob1"};
  const RankPlacement uneven{{{"n1", 2}, {"n2", 1}}};
  const std::string line = to_shell(srun_command(options, uneven, {1, 1, 1}, program, "/run/hosts"));
  EXPECT_EQ(line.rfind("SLURM_HOSTFILE=/run/hosts OMPI_MCA_pml=ob1 srun --mpi=pmix --nodes=2 --ntasks=3 "
                       "--distribution=arbitrary --overcommit --cpu-bind=none",
                       0),
            0U)
      << line;
  EXPECT_EQ(host_of_each_rank(uneven), "n1\nn1\nn2\n");
}

TEST(Slurm, TheBatchScript) {
  SlurmOptions options;
  options.nodes = 4;
  options.time = "1:00:00";
  options.sbatch_args = {"--gres=gpu:2"};
  const SlurmShape shape = slurm_shape(options, job(2, 2, 2), true);
  EXPECT_EQ(shape.nodes, 4);
  EXPECT_EQ(shape.ranks_per_node, 2);
  EXPECT_EQ(shape.least_nodes, 2);
  EXPECT_EQ(
      batch_script(options, shape, "my run", "/runs/it", {"/opt/triax", "launch", "a job.yaml"}),
      "#!/bin/bash\n# Written by `triax launch --slurm`.\n#SBATCH --job-name='my run'\n#SBATCH --nodes=2-4\n"
      "#SBATCH --ntasks-per-node=2\n#SBATCH --time=1:00:00\n#SBATCH --output=/runs/it/slurm-%j.out\n"
      "#SBATCH --open-mode=append\n#SBATCH --requeue\n#SBATCH --signal=B:USR1@120\n#SBATCH --gres=gpu:2\n\n"
      "exec /opt/triax launch 'a job.yaml'\n");
  options.nodes = 3;
  EXPECT_NE(refusal([&] { slurm_shape(options, job(2, 2, 2), false); }).find("--nodes can be"),
            std::string::npos);
  options.nodes = 8;
  EXPECT_NE(refusal([&] { slurm_shape(options, job(2, 2, 2), false); }).find("parallel.tensor: 2"),
            std::string::npos);
}

TEST(RestartPolicy, CountsOnlyFailuresWithoutProgress) {
  RestartPolicy policy(2, 100ms, -1);
  const auto after = [&](int status, int64_t checkpoint) {
    return policy.after({status, 0, false, checkpoint});
  };
  Decision d = after(1, -1);
  EXPECT_TRUE(d.restart);
  EXPECT_EQ(d.wait, 100ms);
  d = after(137, -1);
  EXPECT_TRUE(d.restart);
  EXPECT_EQ(d.wait, 200ms);
  d = after(1, 10);  // progress
  EXPECT_TRUE(d.restart);
  EXPECT_EQ(d.wait, 100ms);
  EXPECT_EQ(policy.failures(), 0);
  EXPECT_TRUE(after(1, 10).restart);
  EXPECT_TRUE(after(1, 10).restart);
  d = after(139, 10);
  EXPECT_FALSE(d.restart);
  EXPECT_EQ(d.status, exit_fault);
  EXPECT_NE(d.reason.find("3 failures without a newer checkpoint"), std::string::npos) << d.reason;
}

TEST(RestartPolicy, WaitsAtMostFiveMinutes) {
  RestartPolicy policy(100, 1s, 5);
  std::chrono::milliseconds last{};
  for (int i = 0; i < 50; ++i) last = policy.after({1, 0, false, 5}).wait;
  EXPECT_EQ(last, 5min);
}

TEST(RestartPolicy, WhatIsNoFailureIsPassedOn) {
  const auto status = [](int code, int signal = 0, bool at_once = false) {
    const Decision d = RestartPolicy(9, 1s, -1).after({code, signal, at_once, -1});
    return d.restart ? -1 : d.status;
  };
  EXPECT_EQ(status(0), 0);
  EXPECT_EQ(status(2), 2);
  EXPECT_EQ(status(75), 75);
  EXPECT_EQ(status(75, SIGTERM), 75);
  EXPECT_EQ(status(75, SIGINT), 130);
  EXPECT_EQ(status(130), 130);
  EXPECT_EQ(status(143, SIGINT, true), 130);
  // SIGUSR1 met a rank that had not begun to listen: nothing was begun, nothing is lost.
  EXPECT_EQ(status(128 + SIGUSR1, SIGTERM), 75);
  EXPECT_EQ(status(128 + SIGUSR1, SIGINT), 130);
  EXPECT_EQ(status(1, SIGTERM), 1);  // asked to stop, failed
  EXPECT_EQ(status(1), -1);          // started again
  EXPECT_EQ(status(137), -1);
  EXPECT_EQ(RestartPolicy(0, 1s, -1).after({1, 0, false, 100}).restart, false);
}

TEST(Banners, OnlyNoticesOfAStatusGoAndOnlyWhileStopping) {
  const std::string dashes = std::string(74, '-') + "\n";
  const std::string notice =
      dashes + "mpirun detected that one or more processes exited with non-zero status, thus\n" + dashes;
  const std::string other = dashes + "There are not enough slots available\n" + dashes;
  const std::string text = "step 1\n" + notice + "saved\n" + other + "no end";
  for (const size_t piece : {1, 7, 1000}) {
    const auto shown = [&](bool stopping) {
      Banners banners;
      std::string all;
      for (size_t i = 0; i < text.size(); i += piece)
        all += banners.pass(text.data() + i, std::min(piece, text.size() - i), stopping);
      return all + banners.rest();
    };
    EXPECT_EQ(shown(false), text) << piece;
    EXPECT_EQ(shown(true), "step 1\nsaved\n" + other + "no end") << piece;
  }
  Banners banners;
  EXPECT_EQ(banners.pass("step 2 ", 7, true), "step 2 ");  // a line without its end is shown
}

TEST(FirstCause, IsWhatMpirunSawFirst) {
  const auto cause = [](const std::string& text) {
    FirstCause c;
    for (size_t i = 0; i < text.size(); i += 7) c.add(text.data() + i, std::min<size_t>(7, text.size() - i));
    return c.text();
  };
  const std::string killed =
      "\nkilled from outside: for want of memory, then `dmesg` on that host tells, and a smaller "
      "training.micro_batch_size or more ranks help (`triax plan` shows the memory); or by somebody";
  EXPECT_EQ(cause("hello\n"), "");
  EXPECT_EQ(cause("triax: error: rank 2: here.cpp:1: no\ntriax: error: rank 0: stopped because\n"),
            "rank 2: here.cpp:1: no");
  // Every line of the error, and none of who speaks next.
  EXPECT_EQ(cause("triax: error: rank 1: the loss is nan\n  layers.1, token 3\n  on ranks 0, 1\n"
                  "triax: error: rank 0: stopped because\n  of rank 1\n"),
            "rank 1: the loss is nan\n  layers.1, token 3\n  on ranks 0, 1");
  EXPECT_EQ(cause("triax: error: rank 1: no\n-----\nmpirun's words\n"), "rank 1: no");
  EXPECT_EQ(
      cause("triax: error: rank 0: a peer is gone\nmpirun noticed that process rank 3 with PID 0 on node h1 "
            "exited on signal 9 (Killed).\n"),
      "mpirun noticed that process rank 3 with PID 0 on node h1 exited on signal 9 (Killed)." + killed);
  EXPECT_EQ(
      cause("ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node h1\n"
            "  Remote daemon: [[1,0],1] on node h2\n"),
      "host h2 does not answer any more");
  EXPECT_EQ(cause("srun: error: h1: task 3: Killed\n"), "srun: error: h1: task 3: Killed" + killed);
  EXPECT_EQ(cause("srun: error: h1: task 3: Segmentation fault\n"),
            "srun: error: h1: task 3: Segmentation fault");
  // Stopped processes are killed by whoever ends the job; that they were is no cause.
  const std::string hang = "the watchdog ends the job: an operation has taken longer\n  rank 3 is stopped";
  EXPECT_EQ(cause("triax: error: " + hang + "\nsrun: error: h1: task 3: Killed\n"), hang);
  FirstCause none;
  EXPECT_TRUE(none.started());
  const std::string text = "srun: error: task 0 launch failed: Unspecified error\n";
  none.add(text.data(), text.size());
  EXPECT_FALSE(none.started());
}

}  // namespace
}  // namespace triax
