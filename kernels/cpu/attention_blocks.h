#pragma once

#include <cstdint>

#include "core/bf16.h"
#include "kernels/cpu/element_type.h"
#include "kernels/kernels.h"

namespace triax::cpu {

constexpr int64_t attention_block = 64;  ///< queries, and keys, of a block
static_assert(attention_block == cache_block, "cached attention sums in the same order");
/// Most blocks of queries that meet a block of keys one after the other, before it is loaded again: theirs
/// and the keys' buffers stay in a core's own caches.
constexpr int64_t attention_group = 4;
constexpr int64_t attention_max_head = 256;  ///< largest head size: buffers of a block live on the stack

/// The pieces of attention for one instruction set. What a piece writes has the same bits whichever other
/// pieces run, and keys and queries are met in ascending order of blocks everywhere.
struct AttentionPieces {
  /// Out and lse of `count` <= attention_group blocks of queries of one head.
  void (*forward)(const AttentionForward&, int64_t batch, int64_t head, int64_t first_block, int64_t count);
  /// All gradients of one key-value head and its query heads. In bf16 for one query head of at most
  /// attention_group blocks: gradients of keys to which more is to come lie in dqkv.
  void (*backward)(const AttentionBackward&, int64_t batch, int64_t kv_head);
  /// Gradients of one block of keys and values, and of one block of queries: together the same bits as
  /// backward(), for 7/5 of its work, in pieces that can run at once.
  void (*backward_keys)(const AttentionBackward&, int64_t batch, int64_t kv_head, int64_t key_block);
  void (*backward_queries)(const AttentionBackward&, int64_t batch, int64_t head, int64_t query_block);
  /// Out of `cached_rows` new queries of one key-value head (fewer at the end). Its queries are counted
  /// position by position, and within a position head by head; the cache holds the new keys already.
  void (*cached)(const AttentionCached&, int64_t kv_head, int64_t tile);
  int64_t cached_rows;
};

const AttentionPieces& attention_avx512();
const AttentionPieces& attention_avx2();
const AttentionPieces& attention_generic();

}  // namespace triax::cpu
