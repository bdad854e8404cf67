#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/cpu.h"

namespace triax::cpu {

namespace {

const AttentionPieces& attention_pieces() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    return attention_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return attention_avx2();
#endif
  return attention_generic();
}

template <class Op>
void check_shape(const Op& op) {
  check(op.head_size >= 1 && op.head_size <= attention_max_head,
        "attention with a head size of {}: the CPU's kernels take 1 to {}; choose more heads or a smaller "
        "hidden_size",
        op.head_size, attention_max_head);
  check(op.kv_heads >= 1 && op.heads % op.kv_heads == 0,
        "attention with {} query heads on {} key-value heads: the former must be a multiple of the latter",
        op.heads, op.kv_heads);
}

int64_t blocks_of(int64_t s) {
  return (s + attention_block - 1) / attention_block;
}

// The new positions of one key-value head, into the cache.
template <class T>
void remember(const AttentionCached& op, int64_t kv) {
  const int64_t d = op.head_size, row = (op.heads + 2 * op.kv_heads) * d;
  for (int64_t t = 0; t < op.s; ++t) {
    const T* key = op.qkv.as<T>() + t * row + (op.heads + kv) * d;
    const int64_t position = op.first + t, block = kv * (op.capacity / cache_block) + position / cache_block;
    T* to = op.keys.as<T>() + block * d * cache_block + position % cache_block;
    for (int64_t k = 0; k < d; ++k) to[k * cache_block] = key[k];
    std::copy_n(key + op.kv_heads * d, d, op.values.as<T>() + (kv * op.capacity + position) * d);
  }
}

}  // namespace

void attention_forward(Device& device, const AttentionForward& op) {
  check_shape(op);
  const AttentionPieces& pieces = attention_pieces();
  const int64_t blocks = blocks_of(op.s), heads = op.b * op.heads, n = device.threads().size();
  // Fewer at a time when there would not be work for all threads; the bits are the same.
  const int64_t count = std::clamp<int64_t>(blocks * heads / (4 * n), 1, attention_group);
  const int64_t groups = (blocks + count - 1) / count;
  // Late blocks of queries see more keys: they go first, so that threads finish together.
  device.threads().run(groups * heads, [&](int64_t i) {
    const int64_t first = (groups - 1 - i / heads) * count;
    pieces.forward(op, i % heads / op.heads, i % op.heads, first, std::min(count, blocks - first));
  });
}

void attention_backward(Device& device, const AttentionBackward& op) {
  check_shape(op);
  const AttentionPieces& pieces = attention_pieces();
  ThreadPool& threads = device.threads();
  const int64_t blocks = blocks_of(op.s), kv_heads = op.b * op.kv_heads, heads = op.b * op.heads;
  // Whole heads when they keep the threads busy, else pieces of heads, which compute the scores twice (5
  // products against 7). Both give the same bits, so the choice may look at the number of threads. In bf16
  // pieces, too, where a whole head would round what it has yet to add to.
  const int64_t n = threads.size(), rounds = (kv_heads + n - 1) / n;
  const bool whole = op.dqkv.dtype() == DType::f32 || (blocks <= attention_group && op.heads == op.kv_heads);
  if (whole && 5 * rounds * n <= 7 * kv_heads) {
    threads.run(kv_heads, [&](int64_t i) { pieces.backward(op, i / op.kv_heads, i % op.kv_heads); });
    return;
  }
  threads.run(kv_heads * blocks, [&](int64_t i) {  // early blocks of keys are seen by more queries
    pieces.backward_keys(op, i % kv_heads / op.kv_heads, i % op.kv_heads, i / kv_heads);
  });
  threads.run(heads * blocks, [&](int64_t i) {
    pieces.backward_queries(op, i % heads / op.heads, i % op.heads, blocks - 1 - i / heads);
  });
}

void attention_cached(Device& device, const AttentionCached& op) {
  check_shape(op);
  check(op.capacity % cache_block == 0 && op.first >= 0 && op.first + op.s <= op.capacity,
        "positions {} to {} of a key-value cache of {}", op.first, op.first + op.s, op.capacity);
  const AttentionPieces& pieces = attention_pieces();
  device.threads().run(op.kv_heads, [&](int64_t kv) { TRIAX_TYPED(op.out, remember, op, kv); });
  const int64_t rows = op.s * (op.heads / op.kv_heads);
  const int64_t tiles = (rows + pieces.cached_rows - 1) / pieces.cached_rows;
  device.threads().run(tiles * op.kv_heads,
                       [&](int64_t i) { pieces.cached(op, i % op.kv_heads, tiles - 1 - i / op.kv_heads); });
}

}  // namespace triax::cpu
