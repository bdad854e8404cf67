#include "parallel/config.h"

#include "core/fields.h"

namespace triax {

const FieldTable<ParallelConfig>& fields_of(const ParallelConfig*) {
  static const FieldTable<ParallelConfig> table = [] {
    using C = ParallelConfig;
    constexpr double most = 1 << 20;
    FieldTable<C> t;
    t.add("tensor", &C::tensor,
          "Ranks that share every layer's matrices; auto is that of the quickest grid that fits the cluster.")
        .zero_is("auto")
        .at_least(1)
        .at_most(most);
    t.add("pipeline", &C::pipeline,
          "Stages that share the layers; auto is that of the quickest grid that fits the cluster.")
        .zero_is("auto")
        .at_least(1)
        .at_most(most);
    t.add("data", &C::data, "Replicas that share the batch; auto is ranks / (tensor * pipeline).")
        .zero_is("auto")
        .at_least(1)
        .at_most(most);
    t.add("sequence_parallel", &C::sequence_parallel,
          "Cut norms, residuals and dropout by sequence over the tensor ranks; needs tensor > 1.");
    t.add("schedule", &C::schedule, "Order of forward and backward passes in the pipeline.")
        .one_of({"gpipe", "1f1b", "interleaved", "zb-h1"});
    t.add("virtual_stages", &C::virtual_stages,
          "Model chunks per pipeline rank; more than 1 with interleaved.")
        .at_least(1)
        .at_most(most);
    t.add("zero_stage", &C::zero_stage,
          "1 shares the optimizer's state among the data ranks, 0 keeps it whole.")
        .at_least(0)
        .at_most(1);
    t.add("zero_shard_ranks", &C::zero_shard_ranks,
          "Consecutive data ranks that share one copy of the optimizer's state; auto is all of them, else a "
          "divisor of data.")
        .zero_is("auto")
        .at_least(1)
        .at_most(most);
    t.add("overlap_comm", &C::overlap_comm,
          "Send while computing: gradients over the data ranks as the last micro-batch's backward finishes "
          "them, "
          "weights back under the next forward, dX over the tensor ranks under dW. Changes no bit.");
    t.add("reduce_bucket_size", &C::reduce_bucket_size,
          "Elements of gradients that go over the data ranks in one message, at least.")
        .at_least(1)
        .at_most(1e12);
    t.add("allow_tensor_across_nodes", &C::allow_tensor_across_nodes,
          "Accept a tensor group whose ranks are on several nodes.");
    t.add("transport", &C::transport,
          "With device cuda and ranks that are processes, how they exchange what is on their GPUs: NCCL in "
          "groups whose ranks have a GPU each and the host's memory else (auto), only NCCL, or only the "
          "host's memory.")
        .one_of({"auto", "nccl", "host"});
    t.add("cluster", &C::cluster,
          "File that describes the cluster, for tensor and pipeline auto and for plans.")
        .derived("this host, for ranks that are threads");
    return t;
  }();
  return table;
}

}  // namespace triax
