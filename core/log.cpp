#include "core/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <cstdio>

#include "core/error.h"
#include "core/terminal.h"

namespace triax {

// Not in spdlog's registry, which is global.
struct Log::Impl {
  explicit Impl(const std::string& path)
      : logger("", std::make_shared<spdlog::sinks::basic_file_sink_st>(path)) {
    logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l%v");
    logger.flush_on(spdlog::level::info);
  }
  spdlog::logger logger;
};

Log::Log(const std::string& path, int rank, bool verbose, bool quiet)
    : rank_(rank), verbose_(verbose), quiet_(quiet) {
  try {
    impl_ = std::make_unique<Impl>(path);
  } catch (const spdlog::spdlog_ex& error) {
    fail("the log {} can't be written: {}", path, error.what());
  }
}

Log::~Log() = default;

void Log::write(Level level, const std::string& text) {
  const bool error = level == Level::error || level == Level::noted_error;
  const std::string step = step_ > 0 ? fmt::format(" step {}", step_) : "";
  impl_->logger.log(error                     ? spdlog::level::err
                    : level == Level::warning ? spdlog::level::warn
                                              : spdlog::level::info,
                    step + ": " + text);
  // One call each, so that lines of several ranks don't mix.
  if (level == Level::console && rank_ == 0) {
    if (quiet_) return;
    std::fputs((text + "\n").c_str(), stdout);
    std::fflush(stdout);
  } else if (level == Level::warning || level == Level::error || (verbose_ && level != Level::noted_error)) {
    const Ink ink = level == Level::error ? Ink::red : level == Level::warning ? Ink::yellow : Ink::faint;
    std::fputs(inked(stderr, ink, fmt::format("triax: rank {}: {}", rank_, text)).append("\n").c_str(),
               stderr);
  }
}

}  // namespace triax
