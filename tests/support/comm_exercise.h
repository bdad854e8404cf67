#pragma once

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "comm/communicator.h"

// One suite for every backend: each function is called by all ranks of a group and throws where a result is
// not bit for bit that of a serial loop. The truth is computed here from all ranks' inputs, without the code
// under test.
namespace triax::exercise {

// SplitMix64 (Steele et al., 2014).
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline float value_of(bf16 v) {
  const uint32_t bits = static_cast<uint32_t>(v.bits) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
// By distances: the nearer of the two neighbours, the even one in the middle.
inline bf16 nearest_bf16(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  const bf16 low{static_cast<uint16_t>(bits >> 16)}, high{static_cast<uint16_t>((bits >> 16) + 1)};
  const double below = std::abs(double{v} - double{value_of(low)});
  const double above = std::abs(double{value_of(high)} - double{v});
  if (below != above) return below < above ? low : high;
  return low.bits % 2 == 0 ? low : high;
}

/// Element `i` of rank `rank`'s input. Floats of very different size, so that the order of a sum shows.
template <class T>
T input(uint64_t seed, int rank, int64_t i) {
  const uint64_t bits = mix(mix(seed * 1000003 + static_cast<uint64_t>(rank)) + static_cast<uint64_t>(i));
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits % 1000) - static_cast<T>(std::is_signed_v<T> ? 500 : 0);
  } else {
    const double v = (static_cast<double>(bits >> 40) / double(1 << 24) - 0.5) *
                     std::ldexp(1.0, static_cast<int>(bits % 24) - 12);
    if constexpr (std::is_same_v<T, bf16>)
      return nearest_bf16(static_cast<float>(v));
    else
      return static_cast<T>(v);
  }
}

/// The reduction over ranks 0, 1, ... n-1 of element i, one after the other.
template <class T>
T serial(uint64_t seed, int n, int64_t i, ReduceOp op) {
  if constexpr (std::is_same_v<T, bf16>) {
    float total = value_of(input<bf16>(seed, 0, i));
    for (int r = 1; r < n; ++r) {
      const float v = value_of(input<bf16>(seed, r, i));
      total = op == ReduceOp::sum ? total + v : std::max(total, v);
    }
    return nearest_bf16(total);
  } else {
    T total = input<T>(seed, 0, i);
    for (int r = 1; r < n; ++r) {
      const T v = input<T>(seed, r, i);
      total = op == ReduceOp::sum ? static_cast<T>(total + v) : std::max(total, v);
    }
    return total;
  }
}

template <class T>
std::vector<T> inputs(uint64_t seed, int rank, int64_t count) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[i] = input<T>(seed, rank, i);
  return v;
}

template <class T>
Tensor view(std::vector<T>& v) {
  return Tensor::of(v.data(), {static_cast<int64_t>(v.size())});
}

// Of a long buffer only some elements are compared: the truth is slow.
inline int64_t stride(int64_t count) {
  return count > 100000 ? 61 : 1;
}

template <class T>
void expect(const T& got, const T& want, const Communicator& c, const char* what, int64_t i, int64_t count) {
  if (std::memcmp(&got, &want, sizeof(T)) != 0)
    throw std::runtime_error(
        fmt::format("{} of {}[{}], rank {} of {}: element {} differs from the serial loop", what,
                    name_of(DTypeOf<T>::value), count, c.rank(), c.size(), i));
}

template <class T>
void all_reduce(Communicator& c, int64_t count, ReduceOp op, bool in_place, uint64_t seed) {
  std::vector<T> in = inputs<T>(seed, c.rank(), count), apart(in.size());
  std::vector<T>& out = in_place ? in : apart;
  c.all_reduce(view(in), view(out), op).wait();
  for (int64_t i = 0; i < count; i += stride(count))
    expect(out[i], serial<T>(seed, c.size(), i, op), c, "all_reduce", i, count);
}

template <class T>
void reduce_scatter(Communicator& c, int64_t count, ReduceOp op, bool in_place, uint64_t seed) {
  std::vector<T> in = inputs<T>(seed, c.rank(), count * c.size()), apart(static_cast<size_t>(count));
  const Tensor out = in_place ? Tensor::of(in.data() + c.rank() * count, {count}) : view(apart);
  c.reduce_scatter(view(in), out, op).wait();
  for (int64_t i = 0; i < count; i += stride(count))
    expect(out.as<T>()[i], serial<T>(seed, c.size(), c.rank() * count + i, op), c, "reduce_scatter", i,
           count);
}

template <class T>
void all_gather(Communicator& c, int64_t count, bool in_place, uint64_t seed) {
  std::vector<T> mine = inputs<T>(seed, c.rank(), count), out(static_cast<size_t>(count * c.size()));
  Tensor in = view(mine);
  if (in_place) {
    in = Tensor::of(out.data() + c.rank() * count, {count});
    std::copy(mine.begin(), mine.end(), in.as<T>());
  }
  c.all_gather(in, view(out)).wait();
  for (int r = 0; r < c.size(); ++r)
    for (int64_t i = 0; i < count; i += stride(count))
      expect(out[r * count + i], input<T>(seed, r, i), c, "all_gather", i, count);
}

template <class T>
void broadcast(Communicator& c, int64_t count, int root, uint64_t seed) {
  std::vector<T> v = inputs<T>(seed, c.rank(), count);
  c.broadcast(view(v), root).wait();
  for (int64_t i = 0; i < count; i += stride(count))
    expect(v[i], input<T>(seed, root, i), c, "broadcast", i, count);
}

template <class T>
void all_operations(Communicator& c, const std::vector<int64_t>& counts) {
  uint64_t seed = 1;
  for (int64_t count : counts) {
    for (bool in_place : {false, true}) {
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        all_reduce<T>(c, count, op, in_place, ++seed);
        reduce_scatter<T>(c, count, op, in_place, ++seed);
      }
      all_gather<T>(c, count, in_place, ++seed);
    }
    for (int root = 0; root < c.size(); ++root) broadcast<T>(c, count, root, ++seed);
  }
}

inline void all_dtypes(Communicator& c) {
  // None, one, fewer than ranks, about as many, across the pieces in which the backends work.
  const std::vector<int64_t> counts{0, 1, c.size() - 1, c.size(), c.size() + 1, 37, 4097};
  all_operations<float>(c, counts);
  all_operations<bf16>(c, counts);
  all_operations<double>(c, counts);
  all_operations<int32_t>(c, counts);
  all_operations<int64_t>(c, counts);
  all_operations<uint8_t>(c, counts);
}

/// Many operations under way at once, which every rank waits for in another order.
inline void any_order_of_waits(Communicator& c) {
  constexpr int operations = 7;
  constexpr int64_t count = 40000;
  std::vector<std::vector<float>> data;
  std::vector<Pending> pending;
  for (int k = 0; k < operations; ++k) {
    data.push_back(inputs<float>(100 + k, c.rank(), count));
    pending.push_back(c.all_reduce(view(data[k]), view(data[k]), ReduceOp::sum));
  }
  for (int i = 0; i < operations; ++i) {
    const int k = (i * 3 + c.rank()) % operations;
    pending[k].wait();
    for (int64_t j = 0; j < count; j += 97)
      expect(data[k][j], serial<float>(100 + k, c.size(), j, ReduceOp::sum), c, "started all_reduce", j,
             count);
  }
}

/// Every rank sends to every other one, both directions at once, several messages of different sizes each:
/// they arrive whole and in the order in which they were sent.
inline void messages(Communicator& c) {
  const std::vector<int64_t> counts{3, 0, 100000, 1};
  struct Box {
    std::vector<int32_t> data;
    int peer;
    size_t k;
  };
  std::vector<Box> out, in;
  for (int peer = 0; peer < c.size(); ++peer) {
    if (peer == c.rank()) continue;
    for (size_t k = 0; k < counts.size(); ++k) {
      out.push_back({inputs<int32_t>(500 + 10 * peer + k, c.rank(), counts[k]), peer, k});
      in.push_back({std::vector<int32_t>(static_cast<size_t>(counts[k])), peer, k});
    }
  }
  std::vector<Pending> pending;
  // Odd ranks receive first, even ones send first: neither may block the other.
  for (bool receive : {c.rank() % 2 == 1, c.rank() % 2 == 0})
    for (Box& b : receive ? in : out)
      pending.push_back(receive ? c.recv(view(b.data), b.peer) : c.send(view(b.data), b.peer));
  for (size_t i = pending.size(); i-- > 0;) pending[i].wait();
  for (const Box& b : in)
    for (int64_t i = 0; i < counts[b.k]; ++i)
      expect(b.data[i], input<int32_t>(500 + 10 * c.rank() + b.k, b.peer, i), c, "message", i, counts[b.k]);
}

/// Rows and columns of a grid of two columns work at the same time, and a group without some of the ranks.
inline void groups(Communicator& c) {
  const auto row = c.split(c.rank() / 2, "row");
  const auto column = c.split(c.rank() % 2, "column");
  const int rows = (c.size() + 1) / 2;
  if (row->rank() != c.rank() % 2 || column->rank() != c.rank() / 2 || row->name() != "row")
    throw std::runtime_error("split: a rank has another place than its order in the parent");
  if (column->size() != (c.rank() % 2 == 0 ? rows : c.size() - rows))
    throw std::runtime_error("split: a group has another size than there are ranks of its color");
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> a{c.rank() + 1}, b{c.rank() + 1};
    Pending first = row->all_reduce(view(a), view(a), ReduceOp::sum);
    Pending second = column->all_reduce(view(b), view(b), ReduceOp::sum);
    (round % 2 ? first : second).wait();
    (round % 2 ? second : first).wait();
    int64_t want_a = 0, want_b = 0;
    for (int r = 0; r < c.size(); ++r) {
      if (r / 2 == c.rank() / 2) want_a += r + 1;
      if (r % 2 == c.rank() % 2) want_b += r + 1;
    }
    expect(a[0], want_a, *row, "sum over a row", 0, 1);
    expect(b[0], want_b, *column, "sum over a column", 0, 1);
  }
  const auto alone = c.split(c.rank(), "alone");
  if (alone->size() != 1 || alone->rank() != 0 || alone->name() != "alone")
    throw std::runtime_error("split: a rank with a color of its own is not the one rank of its group");
  all_dtypes(*alone);
  const auto still_alone = alone->split(0, "still alone");
  all_reduce<float>(*still_alone, 100, ReduceOp::sum, true, 9);
  const auto tail = c.split(c.rank() == 0 ? -1 : 5, "tail");
  if ((tail == nullptr) != (c.rank() == 0)) throw std::runtime_error("split: a negative color is no group");
  if (tail) all_reduce<float>(*tail, 100, ReduceOp::sum, true, 9);
  c.barrier();
}

/// A buffer of several segments; sums that are cut differently have the same bits.
inline void large(Communicator& c) {
  all_reduce<float>(c, 1200001, ReduceOp::sum, true, 77);
  reduce_scatter<bf16>(c, 600001, ReduceOp::sum, false, 78);
  all_gather<double>(c, 300001, true, 79);
  broadcast<float>(c, 1000001, c.size() - 1, 80);

  constexpr int64_t count = 10007;
  const std::vector<float> in = inputs<float>(81, c.rank(), count);
  std::vector<float> whole = in, cut = in;
  c.all_reduce(view(whole), view(whole), ReduceOp::sum).wait();
  for (int64_t begin = 0, step = 1; begin < count; begin += step, step = step * 3 + 1) {
    const Tensor part = Tensor::of(cut.data() + begin, {std::min(step, count - begin)});
    c.all_reduce(part, part, ReduceOp::sum).wait();
  }
  for (int64_t i = 0; i < count; ++i) expect(cut[i], whole[i], c, "all_reduce in buckets", i, count);
}

}  // namespace triax::exercise
