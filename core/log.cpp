#include "core/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <cstdio>

#include "core/error.h"

namespace triax {

// Not in spdlog's registry, which is global.
struct Log::Impl {
  explicit Impl(const std::string& path)
      : logger("", std::make_shared<spdlog::sinks::basic_file_sink_st>(path)) {
    logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
    logger.flush_on(spdlog::level::info);
  }
  spdlog::logger logger;
};

Log::Log(const std::string& path, int rank) : rank_(rank) {
  try {
    impl_ = std::make_unique<Impl>(path);
  } catch (const spdlog::spdlog_ex& error) {
    fail("the log {} can't be written: {}", path, error.what());
  }
}

Log::~Log() = default;

void Log::write(Level level, const std::string& text) {
  impl_->logger.log(level == Level::error ? spdlog::level::err : spdlog::level::info, text);
  // One call each, so that lines of several ranks don't mix.
  if (level == Level::error) {
    std::fputs(fmt::format("triax: rank {}: {}\n", rank_, text).c_str(), stderr);
  } else if (level == Level::console && rank_ == 0) {
    std::fputs((text + "\n").c_str(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace triax
