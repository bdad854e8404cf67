#include "launch/hosts.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "core/error.h"

namespace triax {

namespace {

std::optional<int> number(const std::string& text) {
  if (text.empty() || text.size() > 7 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoi(text);
}

void add(std::vector<Host>& hosts, const std::string& name, int slots) {
  const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == name; });
  if (known == hosts.end())
    hosts.push_back({name, slots});
  else
    known->slots = std::max(known->slots, 1) + std::max(slots, 1);
}

// "name" or "name:8"; none when it is neither.
std::optional<Host> host_of(const std::string& text) {
  const size_t colon = text.find(':');
  Host host{text.substr(0, colon), 0};
  if (host.name.empty() || host.name.find_first_of("=, \t") != std::string::npos) return std::nullopt;
  if (colon == std::string::npos) return host;
  const std::optional<int> slots = number(text.substr(colon + 1));
  if (!slots || *slots < 1) return std::nullopt;
  host.slots = *slots;
  return host;
}

// Splits at commas that stand outside of brackets.
std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : list) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// "01-03" as "01", "02", "03"; "7" as itself.
std::vector<std::string> expand_range(const std::string& range) {
  const size_t dash = range.find('-');
  if (dash == std::string::npos) return {range};
  const std::string first = range.substr(0, dash);
  const std::optional<int> from = number(first), to = number(range.substr(dash + 1));
  if (!from || !to || *to < *from) fail_usage("'{}' is no range of a list of Slurm's hosts", range);
  std::vector<std::string> all;
  for (int i = *from; i <= *to; ++i) all.push_back(fmt::format("{:0{}}", i, first.size()));
  return all;
}

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& list) {
  std::vector<Host> hosts;
  for (const std::string& part : split_list(list)) {
    const std::optional<Host> host = host_of(part);
    if (!host)
      fail_usage("--hosts {}: '{}' is no host; it can be NAME or NAME:RANKS, for example a:8,b:8", list,
                 part);
    add(hosts, host->name, host->slots);
  }
  return hosts;
}

std::vector<Host> parse_hostfile(const std::string& text, const std::string& source) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  std::string line;
  for (int n = 1; std::getline(lines, line); ++n) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, word;
    if (!(words >> name)) continue;
    const auto wrong = [&](const std::string& what) {
      fail_usage("{}:{}: '{}' is not understood; a line can be NAME, NAME slots=8 or NAME:8", source, n,
                 what);
    };
    std::optional<Host> host = host_of(name);
    if (!host) wrong(name);
    while (words >> word) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      const std::optional<int> value =
          equals == std::string::npos ? std::nullopt : number(word.substr(equals + 1));
      // max_slots limits oversubscription, which is not done here anyway.
      if (!value || *value < 1 || (key != "slots" && key != "max_slots" && key != "max-slots")) wrong(word);
      if (key == "slots") host->slots = *value;
    }
    add(hosts, host->name, host->slots);
  }
  if (hosts.empty()) fail_usage("{} names no host; a line is NAME slots=8", source);
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail_usage("the hostfile {} can't be read: {}", path, std::strerror(errno));
  return parse_hostfile({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, path);
}

std::vector<std::string> expand_hostlist(const std::string& list) {
  std::vector<std::string> names;
  for (const std::string& part : split_list(list)) {
    const size_t open = part.find('['), close = part.find(']');
    if (open == std::string::npos) {
      if (!part.empty()) names.push_back(part);
      continue;
    }
    if (close == std::string::npos || close < open)
      fail_usage("'{}' is no list of Slurm's hosts: a bracket is open", list);
    const std::vector<std::string> tails = expand_hostlist(part.substr(close + 1));
    for (const std::string& range : split_list(part.substr(open + 1, close - open - 1)))
      for (const std::string& middle : expand_range(range)) {
        const std::string head = part.substr(0, open) + middle;
        if (tails.empty()) names.push_back(head);
        for (const std::string& tail : tails) names.push_back(head + tail);
      }
  }
  return names;
}

std::vector<int> expand_counts(const std::string& list) {
  std::vector<int> counts;
  for (const std::string& part : split_list(list)) {
    const size_t open = part.find("(x");
    const std::optional<int> value = number(part.substr(0, open));
    const std::optional<int> times =
        open == std::string::npos ? 1 : number(part.substr(open + 2, part.find(')') - open - 2));
    if (!value || !times) fail_usage("'{}' is no list of Slurm's counts, such as 8(x2),4", list);
    counts.insert(counts.end(), static_cast<size_t>(*times), *value);
  }
  return counts;
}

std::vector<Host> slurm_allocation() {
  const char* nodes = std::getenv("SLURM_JOB_NODELIST");
  if (!nodes || !std::getenv("SLURM_JOB_ID")) return {};
  const char* counts = std::getenv("SLURM_TASKS_PER_NODE");
  // Without a number of tasks Slurm reckons one per node.
  const bool told = counts && (std::getenv("SLURM_NTASKS") || std::getenv("SLURM_NTASKS_PER_NODE"));
  if (!told) counts = std::getenv("SLURM_JOB_CPUS_PER_NODE");
  const std::vector<std::string> names = expand_hostlist(nodes);
  const std::vector<int> slots = counts ? expand_counts(counts) : std::vector<int>(names.size(), 0);
  if (slots.size() != names.size())
    fail_usage("the Slurm allocation tells of {} nodes ({}) but of ranks on {} ({})", names.size(), nodes,
               slots.size(), counts);
  std::vector<Host> hosts;
  for (size_t i = 0; i < names.size(); ++i) hosts.push_back({names[i], slots[i]});
  return hosts;
}

NodeTopology within_allocation(const NodeTopology& node) {
  const char* counts = std::getenv("SLURM_JOB_CPUS_PER_NODE");
  if (!counts) return node;
  const std::vector<int> processors = expand_counts(counts);
  if (processors.empty()) return node;
  const int least = std::max(1, *std::min_element(processors.begin(), processors.end()));
  NodeTopology own = node;
  own.threads_per_core = std::min(node.threads_per_core, least);
  own.cores = std::min(node.cores, least / own.threads_per_core);
  // Which domains a part of the cores lies in is not told.
  if (own.cores < node.cores) own.domains = 1;
  return own;
}

bool is_this_host(const std::string& name) {
  char own[256] = {};
  gethostname(own, sizeof own - 1);
  const std::string full = own;
  if (name == "localhost" || name == full || name == full.substr(0, full.find('.'))) return true;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  ifaddrs* interfaces = nullptr;
  bool same = false;
  if (getifaddrs(&interfaces) == 0) {
    for (const addrinfo* a = found; a && !same; a = a->ai_next)
      for (const ifaddrs* i = interfaces; i && !same; i = i->ifa_next)
        same = i->ifa_addr && same_address(a->ai_addr, i->ifa_addr);
    freeifaddrs(interfaces);
  }
  freeaddrinfo(found);
  return same;
}

std::string to_string(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", host.name, host.slots);
  return text;
}

}  // namespace triax
