#include "bench/memory_rate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/gemm_rate.h"

namespace triax {
namespace {

TEST(MemoryRates, TheRoofIsTheQuickestKindOfTraffic) {
  EXPECT_EQ((MemoryRates{3, 1, 2}).fastest(), 3);
  EXPECT_EQ((MemoryRates{1, 3, 2}).fastest(), 3);
  EXPECT_EQ((MemoryRates{1, 2, 3}).fastest(), 3);
  const MemoryRates rates = measured_memory_rates(*make_cpu_device(1), 0.001);
  for (const double rate : {rates.triad, rates.streamed, rates.update}) EXPECT_GT(rate, 1e7);
}

TEST(Rates, NoHeldRateIsAboveTheBestAndEachSaysWhoseProducts) {
  std::ostringstream out;
  bench_rates(out, 1, 0.01);
  const auto rates = nlohmann::json::parse(out.str());
  EXPECT_GE(rates.at("stream"), rates.at("triad"));
  for (const std::string type : {"fp32", "bf16"}) {
    EXPECT_GT(rates.at("held_" + type), 0.0);
    EXPECT_LE(rates.at("held_" + type), rates.at("gemm_" + type));
    EXPECT_EQ(rates.at("products_" + type).get<std::string>().rfind("ours", 0), 0U);
  }
}

}  // namespace
}  // namespace triax
