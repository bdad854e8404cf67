#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/vector_math.h"

// Attention for one instruction set, after Dao et al., "FlashAttention" (2022) and its second version (2023).
// Included by attention_{avx512,avx2,generic}.cpp, each of which compiles it for its own target; everything
// is in an unnamed namespace, so that the linker can't swap one target's code for another's.
//
// Isa supplies: lanes, rows and vectors (a register tile is rows x lanes * vectors), Vector, Bits (unsigned
// integers of the same size) and transpose(), which writes a square x square block transposed.
namespace triax::cpu {

namespace {

template <class Isa>
struct AttentionKernel {
  using Vector = typename Isa::Vector;
  using Bits = typename Isa::Bits;
  static constexpr int lanes = Isa::lanes;
  static constexpr int nr = Isa::lanes * Isa::vectors;
  static constexpr int64_t side = attention_block;
  static constexpr int64_t padded_head = (attention_max_head + nr - 1) / nr * nr;
  static_assert(side % nr == 0);

  /// A block of heads' rows [side][at most padded_head], and one of scores [side][side].
  struct alignas(64) Rows {
    float at[side * padded_head];
  };
  struct alignas(64) Scores {
    float at[side * side];
  };

  static Vector load(const float* p) {
    Vector v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }
  static Vector larger(Vector a, Vector b) { return a > b ? a : b; }
  static Vector exp_of_lanes(Vector x) { return exp_lanes<Bits>(x); }

  // ---- products of blocks that lie in buffers ----

  /// What C holds before a product is added to it.
  enum class Start { zero, loaded, scaled };

  /// C[R, nr] = start + sum over k of A(i, k) * B[k, nr], as one chain of multiply-adds in ascending k for
  /// each element. A(i, k) is a[i * lda + k], or a[k * lda + i] when it is stored by columns.
  template <int R, bool by_columns, Start start>
  [[gnu::noinline]] static void micro(int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb,
                                      float* c, int64_t ldc, const float* scale) {
    constexpr int vectors = Isa::vectors;
    const int64_t row_step = by_columns ? 1 : lda, depth_step = by_columns ? lda : 1;
    Vector sum[R][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) {
        sum[i][j] = start == Start::zero ? Vector{} : load(c + i * ldc + j * lanes);
        if (start == Start::scaled) sum[i][j] *= scale[i];
      }
#pragma GCC unroll 2
    for (int64_t k = 0; k < depth; ++k) {
      Vector row[vectors];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) row[j] = load(b + j * lanes);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const Vector x = a[i * row_step] - Vector{};  // in all lanes; unlike + 0, - 0 costs nothing
#pragma GCC unroll 4
        for (int j = 0; j < vectors; ++j) sum[i][j] += x * row[j];
      }
      a += depth_step;
      b += ldb;
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) store(c + i * ldc + j * lanes, sum[i][j]);
  }

  /// micro() for 1 <= rows <= Isa::rows.
  template <bool by_columns, Start start, int R = Isa::rows>
  static void micro_rows(int64_t rows, int64_t depth, const float* a, int64_t lda, const float* b,
                         int64_t ldb, float* c, int64_t ldc, const float* scale = nullptr) {
    if constexpr (R > 1) {
      if (rows < R) return micro_rows<by_columns, start, R - 1>(rows, depth, a, lda, b, ldb, c, ldc, scale);
    }
    micro<R, by_columns, start>(depth, a, lda, b, ldb, c, ldc, scale);
  }

  /// A panel [rows, nr] of scores: X[i] . Y[j] for rows [first, end) of X and the columns at `column` of Y,
  /// which is stored transposed [d][side].
  static void scores(int64_t first, int64_t end, int64_t column, int64_t d, const float* x, int64_t ldx,
                     const float* y_transposed, float* out) {
    for (int64_t i = first; i < end; i += Isa::rows)
      micro_rows<false, Start::zero>(std::min<int64_t>(Isa::rows, end - i), d, x + i * ldx, ldx,
                                     y_transposed + column, side, out + i * side + column, side);
  }

  // ---- moving rows of a head between memory and buffers ----

  static int64_t padded(int64_t d) {
    return (d + nr - 1) / nr * nr;
  }

  /// to[i][0, padded(d)) = scale * from[i * ld][0, d), zero beyond d.
  template <class T>
  static void pack(const T* from, int64_t ld, int64_t rows, int64_t d, float scale, float* to) {
    const int64_t width = padded(d);
    for (int64_t i = 0; i < rows; ++i, from += ld, to += width) {
      for (int64_t k = 0; k < d; ++k) to[k] = value_of(from[k]) * scale;
      for (int64_t k = d; k < width; ++k) to[k] = 0;
    }
  }

  /// to[i * ld][0, d) = from[i][0, d) * scale.
  template <class T>
  static void unpack(const float* from, int64_t rows, int64_t d, float scale, T* to, int64_t ld) {
    const int64_t width = padded(d);
    for (int64_t i = 0; i < rows; ++i, from += width, to += ld)
      for (int64_t k = 0; k < d; ++k) to[k] = rounded<T>(from[k] * scale);
  }

  /// to[k][i] = scale * from[i * ld + k] for rows i, zero for the missing rows of a block.
  template <class T>
  static void pack_transposed(const T* from, int64_t ld, int64_t rows, int64_t d, float scale, float* to) {
    constexpr int64_t square = Isa::square;
    const int64_t fast_rows = rows / square * square, fast_d = d / square * square;
    for (int64_t k = 0; k < fast_d; k += square)
      for (int64_t i = 0; i < fast_rows; i += square)
        Isa::transpose(from + i * ld + k, ld, to + k * side + i, side);
    for (int64_t k = 0; k < d; ++k) {
      float* row = to + k * side;
      for (int64_t i = k < fast_d ? fast_rows : 0; i < rows; ++i) row[i] = value_of(from[i * ld + k]);
      for (int64_t i = rows; i < side; ++i) row[i] = 0;
      if (scale != 1)
        for (int64_t i = 0; i < side; ++i) row[i] *= scale;
    }
  }

  /// Where the rows of a head lie.
  template <class Op>
  struct Place {
    explicit Place(const Op& op)
        : s(op.s),
          d(op.head_size),
          heads(op.heads),
          kv_heads(op.kv_heads),
          row((heads + 2 * kv_heads) * d),
          out_row(heads * d),
          scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)))) {}
    int64_t s, d, heads, kv_heads, row, out_row;
    float scale;
    int64_t blocks() const { return (s + side - 1) / side; }
    int64_t length(int64_t block) const { return std::min(side, s - block * side); }
    int64_t kv_of(int64_t head) const { return head / (heads / kv_heads); }
    int64_t query(int64_t b, int64_t head, int64_t block) const {
      return (b * s + block * side) * row + head * d;
    }
    int64_t key(int64_t b, int64_t kv, int64_t block) const { return query(b, heads + kv, block); }
    int64_t value(int64_t b, int64_t kv, int64_t block) const {
      return query(b, heads + kv_heads + kv, block);
    }
    int64_t out(int64_t b, int64_t head, int64_t block) const {
      return (b * s + block * side) * out_row + head * d;
    }
    int64_t lse(int64_t b, int64_t head, int64_t block) const {
      return (b * heads + head) * s + block * side;
    }
  };

  // ---- forward ----

  /// Running maximum and sum of each query of a block, and the factor by which a new maximum shrinks what was
  /// summed before.
  struct alignas(64) Running {
    float maximum[side], sum[side], factor[side];
  };

  /// Scores [key][query] of `keys` keys become weights, exp(score - maximum); keys after their query, in a
  /// block on the diagonal, get weight 0.
  static void softmax(bool diagonal, int64_t keys, int64_t queries, float* scores, Running& run) {
    for (int64_t q = 0; q < queries; q += lanes) {
      float* column = scores + q;
      const int64_t seen = diagonal ? std::min<int64_t>(keys, q + lanes) : keys;
      if (diagonal)  // keys q + 1 .. q + lanes - 1 come after some of these queries
        for (int64_t j = q + 1; j < seen; ++j)
          for (int64_t i = 0; i < j - q; ++i) column[j * side + i] = -std::numeric_limits<float>::infinity();
      const Vector before = load(run.maximum + q);
      Vector maximum = before;
      for (int64_t j = 0; j < seen; ++j) maximum = larger(load(column + j * side), maximum);
      const Vector factor = exp_of_lanes(before - maximum);
      Vector sum = load(run.sum + q) * factor;
      for (int64_t j = 0; j < seen; ++j) {
        const Vector weight = exp_of_lanes(load(column + j * side) - maximum);
        store(column + j * side, weight);
        sum += weight;
      }
      for (int64_t j = seen; j < keys; ++j) store(column + j * side, Vector{});
      store(run.maximum + q, maximum);
      store(run.sum + q, sum);
      store(run.factor + q, factor);
    }
  }

  /// A block of queries on its way through the keys. `query` is scaled by 1/sqrt(D) and transposed.
  struct Reader {
    Rows query, out;
    Running run;
    int64_t queries;
  };

  template <class T>
  static void load_reader(const AttentionForward& op, int64_t b, int64_t head, int64_t block, Reader& to) {
    const Place place(op);
    to.queries = place.length(block);
    std::fill_n(to.run.maximum, side, -std::numeric_limits<float>::infinity());
    std::fill_n(to.run.sum, side, 0.0f);
    std::memset(to.out.at, 0, sizeof(float) * side * padded(place.d));
    pack_transposed(op.qkv.as<T>() + place.query(b, head, block), place.row, to.queries, place.d, place.scale,
                    to.query.at);
  }

  /// A block of queries meets a block of keys and values.
  static void read(bool diagonal, int64_t keys, int64_t d, const Rows& key, const Rows& value,
                   Scores& weights, Reader& q) {
    const int64_t width = padded(d);
    for (int64_t i = 0; i < q.queries; i += nr)
      scores(0, diagonal ? std::min<int64_t>(keys, i + nr) : keys, i, d, key.at, width, q.query.at,
             weights.at);
    softmax(diagonal, keys, q.queries, weights.at, q.run);
    for (int64_t k = 0; k < width; k += nr)
      for (int64_t i = 0; i < q.queries; i += Isa::rows) {
        const int64_t rows = std::min<int64_t>(Isa::rows, q.queries - i);
        micro_rows<true, Start::scaled>(rows, diagonal ? i + rows : keys, weights.at + i, side, value.at + k,
                                        width, q.out.at + i * width + k, width, q.run.factor + i);
      }
  }

  template <class T>
  static void store_reader(const AttentionForward& op, int64_t b, int64_t head, int64_t block,
                           const Reader& from) {
    const Place place(op);
    float* lse = op.lse + place.lse(b, head, block);
    T* to = op.out.as<T>() + place.out(b, head, block);
    for (int64_t q = 0; q < from.queries; ++q) {
      lse[q] = from.run.maximum[q] + std::log(from.run.sum[q]);
      unpack(from.out.at + q * padded(place.d), 1, place.d, 1 / from.run.sum[q], to + q * place.out_row, 0);
    }
  }

  template <class T>
  static void forward_of(const AttentionForward& op, int64_t b, int64_t head, int64_t first, int64_t count) {
    const Place place(op);
    const int64_t kv = place.kv_of(head);
    Rows key, value;
    Scores weights;  // [key][query], so that the softmax runs along lanes
    Reader readers[attention_group];
    for (int64_t i = 0; i < count; ++i) load_reader<T>(op, b, head, first + i, readers[i]);
    for (int64_t block = 0; block < first + count; ++block) {
      const int64_t keys = place.length(block);
      pack(op.qkv.as<T>() + place.key(b, kv, block), place.row, keys, place.d, 1, key.at);
      pack(op.qkv.as<T>() + place.value(b, kv, block), place.row, keys, place.d, 1, value.at);
      for (int64_t i = std::max<int64_t>(0, block - first); i < count; ++i)
        read(block == first + i, keys, place.d, key, value, weights, readers[i]);
    }
    for (int64_t i = 0; i < count; ++i) store_reader<T>(op, b, head, first + i, readers[i]);
  }

  // ---- backward ----

  /// A block of keys and values; keys and values also transposed, [d][side].
  struct KeyBlock {
    Rows key_transposed, value_transposed, key;
    Rows dkey, dvalue;
    int64_t keys;
  };
  /// A block of queries. `query` is scaled by 1/sqrt(D).
  struct QueryBlock {
    Rows query, dout, dquery;
    alignas(64) float lse[side], delta[side];  // delta = dout . out
    int64_t queries;
  };
  struct Gradients {
    Scores weights, dscores;  // [query][key]
  };
  enum class Wanted { all, keys, queries };

  /// With `more` the gradients go on from what store_keys() has left, else from 0.
  template <class T>
  static void load_keys(const AttentionBackward& op, int64_t b, int64_t kv, int64_t block, Wanted wanted,
                        KeyBlock& to, bool more = false) {
    const Place place(op);
    to.keys = place.length(block);
    const T* key = op.qkv.as<T>() + place.key(b, kv, block);
    pack_transposed(key, place.row, to.keys, place.d, 1, to.key_transposed.at);
    pack_transposed(op.qkv.as<T>() + place.value(b, kv, block), place.row, to.keys, place.d, 1,
                    to.value_transposed.at);
    if (wanted != Wanted::keys) pack(key, place.row, to.keys, place.d, 1, to.key.at);
    if (wanted != Wanted::queries && more) {
      pack(op.dqkv.as<T>() + place.key(b, kv, block), place.row, to.keys, place.d, 1, to.dkey.at);
      pack(op.dqkv.as<T>() + place.value(b, kv, block), place.row, to.keys, place.d, 1, to.dvalue.at);
    } else if (wanted != Wanted::queries) {
      std::memset(to.dkey.at, 0, sizeof(float) * side * padded(place.d));
      std::memset(to.dvalue.at, 0, sizeof(float) * side * padded(place.d));
    }
  }

  template <class T>
  static void store_keys(const AttentionBackward& op, int64_t b, int64_t kv, int64_t block,
                         const KeyBlock& from) {
    const Place place(op);
    unpack(from.dkey.at, from.keys, place.d, 1, op.dqkv.as<T>() + place.key(b, kv, block), place.row);
    unpack(from.dvalue.at, from.keys, place.d, 1, op.dqkv.as<T>() + place.value(b, kv, block), place.row);
  }

  template <class T>
  static void load_queries(const AttentionBackward& op, int64_t b, int64_t head, int64_t block,
                           QueryBlock& to) {
    const Place place(op);
    to.queries = place.length(block);
    const T* dout = op.dout.as<T>() + place.out(b, head, block);
    const T* out = op.out.as<T>() + place.out(b, head, block);
    pack(op.qkv.as<T>() + place.query(b, head, block), place.row, to.queries, place.d, place.scale,
         to.query.at);
    pack(dout, place.out_row, to.queries, place.d, 1, to.dout.at);
    const float* lse = op.lse + place.lse(b, head, block);
    for (int64_t q = 0; q < to.queries; ++q) {
      const T *x = dout + q * place.out_row, *y = out + q * place.out_row;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t k = 0; k < place.d; ++k) sum += value_of(x[k]) * value_of(y[k]);
      to.delta[q] = sum;
      to.lse[q] = lse[q];
    }
  }

  /// What one block of queries and one block of keys give each other: weights and gradients of the scores,
  /// then what is wanted of dvalue, dkey (added to) and dquery (added to unless `first`).
  static void meet(bool diagonal, bool first, int64_t d, Wanted wanted, QueryBlock& q, KeyBlock& k,
                   Gradients& g) {
    const int64_t width = padded(d);
    for (int64_t j = 0; j < k.keys; j += nr) {
      const int64_t from = diagonal ? j : 0;
      scores(from, q.queries, j, d, q.query.at, width, k.key_transposed.at, g.weights.at);
      scores(from, q.queries, j, d, q.dout.at, width, k.value_transposed.at, g.dscores.at);
    }
    for (int64_t i = 0; i < q.queries; ++i) weigh(diagonal ? i : side, q.lse[i], q.delta[i], i, g);
    if (wanted != Wanted::queries)
      for (int64_t c = 0; c < width; c += nr)
        for (int64_t j = 0; j < k.keys; j += Isa::rows) {
          const int64_t rows = std::min<int64_t>(Isa::rows, k.keys - j), from = diagonal ? j : 0;
          const int64_t depth = q.queries - from, score = from * side + j, row = from * width + c;
          micro_rows<true, Start::loaded>(rows, depth, g.weights.at + score, side, q.dout.at + row, width,
                                          k.dvalue.at + j * width + c, width);
          micro_rows<true, Start::loaded>(rows, depth, g.dscores.at + score, side, q.query.at + row, width,
                                          k.dkey.at + j * width + c, width);
        }
    if (wanted == Wanted::keys) return;
    for (int64_t c = 0; c < width; c += nr)
      for (int64_t i = 0; i < q.queries; i += Isa::rows) {
        const int64_t rows = std::min<int64_t>(Isa::rows, q.queries - i),
                      depth = diagonal ? i + rows : k.keys;
        const float *a = g.dscores.at + i * side, *key = k.key.at + c;
        float* to = q.dquery.at + i * width + c;
        if (first)
          micro_rows<false, Start::zero>(rows, depth, a, side, key, width, to, width);
        else
          micro_rows<false, Start::loaded>(rows, depth, a, side, key, width, to, width);
      }
  }

  /// Row i of the scores: weights = exp(score - lse) and dscores = weights * (dweights - delta), both 0 for
  /// keys after `last`.
  static void weigh(int64_t last, float lse, float delta, int64_t i, Gradients& g) {
    float *weights = g.weights.at + i * side, *dscores = g.dscores.at + i * side;
    for (int64_t j = 0; j < side; j += lanes) {
      Vector weight{}, dscore{};
      if (j <= last) {
        weight = exp_of_lanes(load(weights + j) - lse);
        dscore = weight * (load(dscores + j) - delta);
        if (last < j + lanes - 1) {
          Bits lane;
          for (int n = 0; n < lanes; ++n) lane[n] = static_cast<uint32_t>(n);
          const auto seen = lane <= static_cast<uint32_t>(last - j);
          weight = seen ? weight : Vector{};
          dscore = seen ? dscore : Vector{};
        }
      }
      store(weights + j, weight);
      store(dscores + j, dscore);
    }
  }

  template <class T>
  static void store_queries(const AttentionBackward& op, int64_t b, int64_t head, int64_t block,
                            const QueryBlock& from) {
    const Place place(op);
    unpack(from.dquery.at, from.queries, place.d, place.scale, op.dqkv.as<T>() + place.query(b, head, block),
           place.row);
  }

  // Each group of blocks of queries meets all keys; the gradients of these lie in dqkv between two groups.
  template <class T>
  static void backward_of(const AttentionBackward& op, int64_t b, int64_t kv) {
    const Place place(op);
    const int64_t heads = op.heads / op.kv_heads, blocks = place.blocks();
    KeyBlock k;
    QueryBlock q[attention_group];
    Gradients g;
    for (int64_t head = kv * heads; head < (kv + 1) * heads; ++head)
      for (int64_t first = 0; first < blocks; first += attention_group) {
        const int64_t count = std::min(attention_group, blocks - first);
        for (int64_t i = 0; i < count; ++i) load_queries<T>(op, b, head, first + i, q[i]);
        for (int64_t block = 0; block < first + count; ++block) {
          load_keys<T>(op, b, kv, block, Wanted::all, k, head > kv * heads || block < first);
          for (int64_t i = std::max<int64_t>(0, block - first); i < count; ++i)
            meet(block == first + i, block == 0, place.d, Wanted::all, q[i], k, g);
          store_keys<T>(op, b, kv, block, k);
        }
        for (int64_t i = 0; i < count; ++i) store_queries<T>(op, b, head, first + i, q[i]);
      }
  }

  template <class T>
  static void backward_keys_of(const AttentionBackward& op, int64_t b, int64_t kv, int64_t block) {
    const Place place(op);
    const int64_t group = op.heads / op.kv_heads;
    KeyBlock k;
    QueryBlock q;
    Gradients g;
    load_keys<T>(op, b, kv, block, Wanted::keys, k);
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
      for (int64_t query_block = block; query_block < place.blocks(); ++query_block) {
        load_queries<T>(op, b, head, query_block, q);
        meet(query_block == block, false, place.d, Wanted::keys, q, k, g);
      }
    store_keys<T>(op, b, kv, block, k);
  }

  template <class T>
  static void backward_queries_of(const AttentionBackward& op, int64_t b, int64_t head, int64_t query_block) {
    const Place place(op);
    KeyBlock k;
    QueryBlock q;
    Gradients g;
    load_queries<T>(op, b, head, query_block, q);
    for (int64_t block = 0; block <= query_block; ++block) {
      load_keys<T>(op, b, place.kv_of(head), block, Wanted::queries, k);
      meet(query_block == block, block == 0, place.d, Wanted::queries, q, k, g);
    }
    store_queries<T>(op, b, head, query_block, q);
  }

  // ---- new positions on a cache ----

  /// Where the keys [d][side] and values [keys][*ld] of a block lie in fp32: in the cache itself, or packed
  /// into the buffers.
  template <class T>
  static const float* cached_keys(const AttentionCached& op, int64_t kv, int64_t block, Rows& buffer) {
    const int64_t n = op.head_size * side;
    const T* from = op.keys.as<T>() + (kv * (op.capacity / side) + block) * n;
    if constexpr (std::is_same_v<T, float>) return from;
    for (int64_t i = 0; i < n; ++i) buffer.at[i] = value_of(from[i]);
    return buffer.at;
  }
  template <class T>
  static const float* cached_values(const AttentionCached& op, int64_t kv, int64_t block, int64_t keys,
                                    Rows& buffer) {
    const int64_t d = op.head_size;
    const T* from = op.values.as<T>() + (kv * op.capacity + block * side) * d;
    if constexpr (std::is_same_v<T, float>)
      if (padded(d) == d) return from;
    pack(from, d, keys, d, 1, buffer.at);
    return buffer.at;
  }

  /// One row of softmax(): scores of a block's keys, of which the query sees the first `seen`.
  static void softmax_row(int64_t seen, int64_t keys, float* scores, float& maximum, float& sum,
                          float& factor) {
    const int64_t end = (keys + lanes - 1) / lanes * lanes;
    for (int64_t j = seen; j < end; ++j) scores[j] = -std::numeric_limits<float>::infinity();
    float most = maximum;
    for (int64_t j = 0; j < seen; ++j) most = scores[j] > most ? scores[j] : most;
    const Vector shift = most - Vector{};
    factor = exp_of_lanes(maximum - shift)[0];
    for (int64_t j = 0; j < end; j += lanes) store(scores + j, exp_of_lanes(load(scores + j) - shift));
    float total = sum * factor;
    for (int64_t j = 0; j < seen; ++j) total += scores[j];
    maximum = most;
    sum = total;
  }

  template <class T>
  static void cached_of(const AttentionCached& op, int64_t kv, int64_t tile) {
    const int64_t d = op.head_size, width = padded(d), group = op.heads / op.kv_heads;
    const int64_t first = tile * Isa::rows, rows = std::min<int64_t>(Isa::rows, op.s * group - first);
    const auto position = [&](int64_t i) { return op.first + (first + i) / group; };
    const auto head = [&](int64_t i) { return kv * group + (first + i) % group; };
    alignas(64) float query[Isa::rows * padded_head], out[Isa::rows * padded_head];
    alignas(64) float weights[Isa::rows * side];
    float maximum[Isa::rows], sum[Isa::rows] = {}, factor[Isa::rows];
    Rows key_buffer, value_buffer;
    std::fill_n(maximum, Isa::rows, -std::numeric_limits<float>::infinity());
    std::memset(out, 0, sizeof(float) * rows * width);
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
    for (int64_t i = 0; i < rows; ++i)
      pack(op.qkv.as<T>() + (position(i) - op.first) * (op.heads + 2 * op.kv_heads) * d + head(i) * d, 0, 1,
           d, scale, query + i * width);
    const int64_t last = position(rows - 1);
    for (int64_t block = 0; block <= last / side; ++block) {
      const int64_t keys = std::min(side, last + 1 - block * side);
      const float* key = cached_keys<T>(op, kv, block, key_buffer);
      const float* value = cached_values<T>(op, kv, block, keys, value_buffer);
      for (int64_t j = 0; j < keys; j += nr)
        micro_rows<false, Start::zero>(rows, d, query, width, key + j, side, weights + j, side);
      for (int64_t i = 0; i < rows; ++i)
        softmax_row(std::clamp<int64_t>(position(i) + 1 - block * side, 0, keys), keys, weights + i * side,
                    maximum[i], sum[i], factor[i]);
      for (int64_t k = 0; k < width; k += nr)
        micro_rows<false, Start::scaled>(rows, keys, weights, side, value + k, width, out + k, width, factor);
    }
    for (int64_t i = 0; i < rows; ++i)
      unpack(out + i * width, 1, d, 1 / sum[i],
             op.out.as<T>() + (position(i) - op.first) * op.heads * d + head(i) * d, 0);
  }

  static void cached(const AttentionCached& op, int64_t kv, int64_t tile) {
    with_element_type(op.out.dtype(), [&](auto type) { cached_of<decltype(type)>(op, kv, tile); });
  }
  static void forward(const AttentionForward& op, int64_t b, int64_t head, int64_t first, int64_t count) {
    with_element_type(op.out.dtype(),
                      [&](auto type) { forward_of<decltype(type)>(op, b, head, first, count); });
  }
  static void backward(const AttentionBackward& op, int64_t b, int64_t kv) {
    with_element_type(op.dqkv.dtype(), [&](auto type) { backward_of<decltype(type)>(op, b, kv); });
  }
  static void backward_keys(const AttentionBackward& op, int64_t b, int64_t kv, int64_t block) {
    with_element_type(op.dqkv.dtype(),
                      [&](auto type) { backward_keys_of<decltype(type)>(op, b, kv, block); });
  }
  static void backward_queries(const AttentionBackward& op, int64_t b, int64_t head, int64_t block) {
    with_element_type(op.dqkv.dtype(),
                      [&](auto type) { backward_queries_of<decltype(type)>(op, b, head, block); });
  }

  static constexpr AttentionPieces pieces{forward,          backward, backward_keys,
                                          backward_queries, cached,   Isa::rows};
};

}  // namespace

}  // namespace triax::cpu
