#pragma once

#include <cstdint>
#include <string>

namespace triax {

template <class S>
class FieldTable;

/// The job file's `parallel`: how the ranks are split.
struct ParallelConfig {
  int tensor = 2;  ///< 0 is `auto`, as in pipeline; a loaded job has both resolved
  int pipeline = 2;
  int data = 0;  ///< 0 is `auto`; a loaded job has it resolved to ranks / (tensor * pipeline)
  bool sequence_parallel = false;
  std::string schedule = "1f1b";         ///< gpipe | 1f1b | interleaved | zb-h1
  int virtual_stages = 1;                ///< model chunks per pipeline rank
  int zero_stage = 1;                    ///< 0 | 1
  int zero_shard_ranks = 0;              ///< 0 is `auto`: all of data
  bool overlap_comm = true;              ///< start messages as early as their data allow, wait as late
  int64_t reduce_bucket_size = 4 << 20;  ///< elements
  bool allow_tensor_across_nodes = false;
  std::string transport = "auto";  ///< auto | nccl | host: how processes exchange what is on their GPUs
  std::string cluster;  ///< file that describes the cluster, for `auto` and for plans; empty: this host
  bool operator==(const ParallelConfig&) const = default;
};

const FieldTable<ParallelConfig>& fields_of(const ParallelConfig*);

}  // namespace triax
