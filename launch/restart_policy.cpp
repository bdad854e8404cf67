#include "launch/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "launch/commands.h"

namespace triax {

namespace {

constexpr std::chrono::milliseconds longest_wait = std::chrono::minutes(5);

std::chrono::milliseconds doubled(std::chrono::milliseconds wait, int times) {
  for (int i = 0; i < times && wait < longest_wait; ++i) wait *= 2;
  return std::min(wait, longest_wait);
}

std::string times(int n) {
  return n == 1 ? "1 failure" : fmt::format("{} failures", n);
}

}  // namespace

int launcher_status(const Attempt& attempt) {
  if (attempt.at_once) return exit_interrupted;
  const int stopped = attempt.stop_signal == SIGINT ? exit_interrupted : exit_stopped;
  // The request met a process that did not listen yet: nothing was begun, nothing is lost.
  if (attempt.stop_signal && attempt.status == 128 + SIGUSR1) return stopped;
  if (attempt.status == exit_no_program) return exit_usage;
  switch (attempt.status) {
    case exit_done:
    case exit_usage:
    case exit_interrupted:
      return attempt.status;
    case exit_stopped:
      return stopped;
    default:
      return exit_fault;
  }
}

Decision RestartPolicy::after(const Attempt& attempt) {
  const int status = launcher_status(attempt);
  Decision decision{false, status, std::chrono::milliseconds(0), {}};
  if (status != exit_fault) return decision;
  if (attempt.stop_signal) {
    decision.reason = "it was asked to stop, and failed instead of saving";
    return decision;
  }
  const bool progress = attempt.checkpoint > newest_;
  newest_ = std::max(newest_, attempt.checkpoint);
  failures_ = progress ? 0 : failures_ + 1;
  if (max_restarts_ == 0) return decision;
  if (failures_ > max_restarts_) {
    decision.reason = fmt::format("{} without a newer checkpoint, more than --max-restarts {}",
                                  times(failures_), max_restarts_);
    return decision;
  }
  decision.restart = true;
  decision.wait = doubled(backoff_, std::max(0, failures_ - 1));
  decision.reason =
      progress
          ? fmt::format("it had come to the checkpoint of step {}, so this failure does not count", newest_)
          : fmt::format("{} of {} without a newer checkpoint", times(failures_), max_restarts_);
  return decision;
}

}  // namespace triax
