#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "core/cuda_choices.h"
#include "core/error.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/state.h"
#ifdef TRIAX_CUDNN
#include "kernels/cuda/cudnn_graph.h"
#endif

// cuDNN's fused attention: its backend recognises this graph of products, a causal mask and a softmax
// ("Fused Flash Attention fprop" and "bprop" in its manual) and makes one kernel of the forward and a few of
// the backward. Statistics are those of our own kernels, so that one's backward can follow the other's
// forward.

namespace triax::cuda {

using Attention = CudaChoices::Attention;

namespace {

// check_backend() has refused what this library was built without.
Attention choice() {
  static const Attention chosen = cuda_choices().attention;
  return chosen;
}

}  // namespace

#ifdef TRIAX_CUDNN

namespace {

// Tensors in memory.
enum Id : int64_t {
  query = 1,
  key,
  value,
  output,
  statistics,
  output_gradient,
  query_gradient,
  key_gradient,
  value_gradient,
  scale,
  nothing,  ///< what a hidden score is
  one,
  row_products,
  query_sums
};

struct Heads {
  int64_t b, s, heads, kv_heads, d;
  auto operator<=>(const Heads&) const = default;

  int64_t row() const { return (heads + 2 * kv_heads) * d; }
};

using Graph = CudnnGraph;
using Tensor = CudnnGraph::Tensor;

/// `count` heads of fused projections, [B, count, S, D].
Tensor projection(Graph& g, Id id, const Heads& h, int64_t count) {
  return g.tensor(id, CUDNN_DATA_BFLOAT16, {h.b, count, h.s, h.d}, {h.s * h.row(), h.d, h.row(), 1});
}
/// The same, transposed: [B, count, D, S].
Tensor transposed_projection(Graph& g, Id id, const Heads& h) {
  return g.tensor(id, CUDNN_DATA_BFLOAT16, {h.b, h.kv_heads, h.d, h.s}, {h.s * h.row(), h.d, 1, h.row()});
}
/// [B, A, S, D] in rows of all heads.
Tensor rows_of_heads(Graph& g, Id id, const Heads& h) {
  return g.tensor(id, CUDNN_DATA_BFLOAT16, {h.b, h.heads, h.s, h.d},
                  {h.s * h.heads * h.d, h.d, h.heads * h.d, 1});
}
/// A float per row of a head.
Tensor per_row(Graph& g, Id id, const Heads& h) {
  return g.tensor(id, CUDNN_DATA_FLOAT, {h.b, h.heads, h.s, 1}, {h.heads * h.s, h.s, 1, 1});
}

/// y = x where the key is not after the query, else nothing.
Tensor hide_later_keys(Graph& g, Tensor x, Tensor hidden, const Graph::Four& scores) {
  const Tensor row = g.between(scores, CUDNN_DATA_INT32), column = g.between(scores, CUDNN_DATA_INT32),
               seen = g.between(scores, CUDNN_DATA_BOOLEAN), y = g.between(scores);
  g.index(2, x, row);
  g.index(3, x, column);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, seen, CUDNN_DATA_BOOLEAN);
  g.select(x, hidden, seen, y);
  return y;
}

void make_forward(Graph& g, const Heads& h) {
  const Graph::Four scores{h.b, h.heads, h.s, h.s}, rows{h.b, h.heads, h.s, 1};
  const Tensor product = g.between(scores), scaled = g.between(scores);
  g.multiply(projection(g, query, h, h.heads), transposed_projection(g, key, h), product);
  g.pointwise(CUDNN_POINTWISE_MUL, product, g.scalar(scale), scaled);
  const Tensor seen = hide_later_keys(g, scaled, g.scalar(nothing), scores);

  const Tensor maximum = g.between(rows), shifted = g.between(scores), power = g.between(scores),
               sum = g.between(rows), logarithm = g.between(rows),
               weight = g.between(scores, CUDNN_DATA_BFLOAT16);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, seen, maximum);
  g.pointwise(CUDNN_POINTWISE_SUB, seen, maximum, shifted);
  g.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, power);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, power, sum);
  g.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, logarithm);
  g.pointwise(CUDNN_POINTWISE_ADD, maximum, logarithm, per_row(g, statistics, h));
  g.pointwise(CUDNN_POINTWISE_DIV, power, sum, weight);
  g.multiply(weight, projection(g, value, h, h.kv_heads), rows_of_heads(g, output, h));
}

/// x, transposed in its last two dimensions, in bf16.
Tensor transposed(Graph& g, Tensor x, const Graph::Four& scores) {
  const Tensor y = g.between(scores, CUDNN_DATA_BFLOAT16,
                             {scores[1] * scores[2] * scores[3], scores[2] * scores[3], 1, scores[3]});
  g.reshape(x, y);
  return y;
}

/// gradient = a b, summed over the query heads of each key-value head.
void multiply_for_keys(Graph& g, Tensor a, Tensor b, Id gradient, const Heads& h) {
  const Tensor to = projection(g, gradient, h, h.kv_heads);
  if (h.heads == h.kv_heads) return g.multiply(a, b, to);
  const Tensor of_each = g.between({h.b, h.heads, h.s, h.d}, CUDNN_DATA_BFLOAT16);
  g.multiply(a, b, of_each);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, of_each, to);
}

void make_backward(Graph& g, const Heads& h, bool deterministic) {
  const Graph::Four scores{h.b, h.heads, h.s, h.s}, rows{h.b, h.heads, h.s, 1},
      outputs{h.b, h.heads, h.s, h.d};
  const Tensor q = projection(g, query, h, h.heads), k = transposed_projection(g, key, h),
               v = transposed_projection(g, value, h), factor = g.scalar(scale),
               d_out = rows_of_heads(g, output_gradient, h);
  // What the softmax's gradient subtracts.
  const Tensor both =
                   g.between(outputs, CUDNN_DATA_FLOAT, {h.s * h.heads * h.d, h.s * h.d, h.heads * h.d, 1}),
               sum = g.between(rows), subtracted = per_row(g, row_products, h);
  g.pointwise(CUDNN_POINTWISE_MUL, d_out, rows_of_heads(g, output, h), both);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, both, sum);
  g.pointwise(CUDNN_POINTWISE_MUL, sum, g.scalar(one), subtracted);

  const Tensor product = g.between(scores), scaled = g.between(scores), shifted = g.between(scores),
               weight = g.between(scores);
  g.multiply(q, k, product);
  g.pointwise(CUDNN_POINTWISE_MUL, product, factor, scaled);
  g.pointwise(CUDNN_POINTWISE_SUB, scaled, per_row(g, statistics, h), shifted);
  g.pointwise(CUDNN_POINTWISE_EXP, hide_later_keys(g, shifted, g.scalar(nothing), scores), nullptr, weight);
  multiply_for_keys(g, transposed(g, weight, scores), d_out, value_gradient, h);

  const Tensor d_weight = g.between(scores), difference = g.between(scores), unscaled = g.between(scores),
               d_score = g.between(scores);
  g.multiply(d_out, v, d_weight);
  g.pointwise(CUDNN_POINTWISE_SUB, d_weight, subtracted, difference);
  g.pointwise(CUDNN_POINTWISE_MUL, difference, weight, unscaled);
  g.pointwise(CUDNN_POINTWISE_MUL, unscaled, factor, d_score);
  multiply_for_keys(g, transposed(g, d_score, scores), q, key_gradient, h);

  const Tensor keys =
      g.between({h.b, h.kv_heads, h.s, h.d}, CUDNN_DATA_BFLOAT16, {h.s * h.row(), h.d, h.row(), 1});
  g.reshape(k, keys);
  const Tensor d_query = projection(g, query_gradient, h, h.heads);
  if (deterministic) return g.multiply(d_score, keys, d_query);
  // Blocks of keys add to it as they come: faster, in an order that chance decides.
  const Tensor sums =
      g.tensor(query_sums, CUDNN_DATA_FLOAT, outputs, {h.heads * h.s * h.d, h.s * h.d, h.d, 1});
  g.multiply(d_score, keys, sums);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, sums, nullptr, d_query);
}

}  // namespace

/// Plans by shape, and the memory that they share.
class CudnnAttention {
 public:
  explicit CudnnAttention(CudaDevice& device) : device_(device) {
    cudnn_.check(cudnn_.create(&handle_), "cudnnCreate");
    cudnn_.check(cudnn_.set_stream(handle_, device.stream()), "cudnnSetStream");
  }
  ~CudnnAttention() {
    plans_.clear();
    device_.deallocate(workspace_, room_);
    cudnn_.destroy(handle_);
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  bool forward(const AttentionForward& op) {
    const Heads h{op.b, op.s, op.heads, op.kv_heads, op.head_size};
    Plan& plan = plan_of(h, false);
    if (!plan.exists) return false;
    const bf16* qkv = op.qkv.as<bf16>();
    run(plan, h, {query, key, value, output, statistics},
        {at(qkv), at(qkv + h.heads * h.d), at(qkv + (h.heads + h.kv_heads) * h.d), op.out.as<bf16>(),
         op.lse});
    return true;
  }

  bool backward(const AttentionBackward& op) {
    const Heads h{op.b, op.s, op.heads, op.kv_heads, op.head_size};
    Plan& plan = plan_of(h, true);
    if (!plan.exists) return false;
    const bf16* qkv = op.qkv.as<bf16>();
    bf16* dqkv = op.dqkv.as<bf16>();
    const int64_t to_keys = h.heads * h.d, to_values = to_keys + h.kv_heads * h.d;
    char* own = static_cast<char*>(workspace_) + plan.of_cudnn;
    std::vector<int64_t> ids{
        query,          key,          value,          output,       statistics, output_gradient,
        query_gradient, key_gradient, value_gradient, row_products, one};
    std::vector<void*> addresses{at(qkv),
                                 at(qkv + to_keys),
                                 at(qkv + to_values),
                                 at(op.out.as<bf16>()),
                                 at(op.lse),
                                 at(op.dout.as<bf16>()),
                                 dqkv,
                                 dqkv + to_keys,
                                 dqkv + to_values,
                                 own,
                                 &one_};
    if (plan.sums_queries) ids.push_back(query_sums), addresses.push_back(own + plan.row_products);
    run(plan, h, std::move(ids), std::move(addresses));
    return true;
  }

 private:
  struct Plan {
    CudnnGraph graph;
    bool exists = false, sums_queries = false;
    size_t of_cudnn = 0, row_products = 0;  // bytes
  };

  static void* at(const void* p) { return const_cast<void*>(p); }
  static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

  Plan& plan_of(const Heads& h, bool backward) {
    const auto [found, is_new] = plans_.try_emplace({h, backward});
    Plan& plan = found->second;
    if (!is_new) return plan;
    const bool deterministic = choice() == Attention::cudnn_deterministic;
    if (backward)
      make_backward(plan.graph, h, deterministic);
    else
      make_forward(plan.graph, h);
    plan.graph.close(handle_);
    plan.exists = plan.graph.plan(handle_);
    if (!plan.exists) return plan;
    plan.of_cudnn = rounded(plan.graph.workspace_bytes());
    size_t bytes = plan.of_cudnn;
    if (backward) {
      const auto rows = static_cast<size_t>(h.b * h.heads * h.s);
      plan.row_products = rounded(rows * sizeof(float));
      plan.sums_queries = !deterministic;
      bytes += plan.row_products +
               (plan.sums_queries ? rows * static_cast<size_t>(h.d) * sizeof(float) : size_t{0});
    }
    if (bytes > room_) {
      device_.deallocate(workspace_, room_);
      workspace_ = device_.allocate(bytes, "cuDNN's attention");
      room_ = bytes;
    }
    return plan;
  }

  void run(const Plan& plan, const Heads& h, std::vector<int64_t> ids, std::vector<void*> addresses) {
    scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(h.d)));
    ids.insert(ids.end(), {scale, nothing});
    addresses.insert(addresses.end(), {&scale_, &nothing_});
    plan.graph.run(handle_, ids, addresses, workspace_);
  }

  CudaDevice& device_;
  const Cudnn& cudnn_ = Cudnn::get();
  cudnnHandle_t handle_ = nullptr;
  std::map<std::pair<Heads, bool>, Plan> plans_;
  void* workspace_ = nullptr;
  size_t room_ = 0;
  float scale_ = 1, nothing_ = -std::numeric_limits<float>::infinity(), one_ = 1;
};

namespace {

CudnnAttention& attention_of(CudaDevice& device) {
  std::shared_ptr<CudnnAttention>& attention = state_of(device).cudnn_attention;
  if (!attention) attention = std::make_shared<CudnnAttention>(device);
  return *attention;
}

bool takes(int64_t head_size, const ConstElements& a, const ConstElements& b, const ConstElements& c,
           const ConstElements& d) {
  return choice() != Attention::own && a.dtype() == DType::bf16 && head_size % 8 == 0 && head_size <= 128 &&
         aligned16(a.as<bf16>(), b.as<bf16>(), c.as<bf16>(), d.as<bf16>());
}

}  // namespace

bool cudnn_attention_forward(CudaDevice& device, const AttentionForward& op) {
  return takes(op.head_size, op.qkv, op.out, op.out, op.out) && attention_of(device).forward(op);
}

bool cudnn_attention_backward(CudaDevice& device, const AttentionBackward& op) {
  return takes(op.head_size, op.qkv, op.out, op.dout, op.dqkv) && attention_of(device).backward(op);
}

void check_cudnn_graphs() {
  for (const int64_t kv_heads : {4, 2})
    for (const int64_t d : {64, 128}) {
      const Heads h{2, 256, 4, kv_heads, d};
      CudnnGraph forward;
      make_forward(forward, h);
      forward.close(nullptr);
      for (const bool deterministic : {false, true}) {
        CudnnGraph backward;
        make_backward(backward, h, deterministic);
        backward.close(nullptr);
      }
    }
}

#else

bool cudnn_attention_forward(CudaDevice&, const AttentionForward&) {
  return choice() != Attention::own;
}
bool cudnn_attention_backward(CudaDevice&, const AttentionBackward&) {
  return choice() != Attention::own;
}

#endif

}  // namespace triax::cuda
