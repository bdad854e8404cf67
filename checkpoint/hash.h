#pragma once

#include <cstdint>
#include <string_view>

#include "checkpoint/state.h"

namespace triax {

/// The logical hash of a tensor. Modulo 2^64, it is the sum over all elements of
///
///     mix((key + index * 0x9E3779B97F4A7C15) xor bits)
///
/// where `index` is the element's row-major index in the whole tensor, `bits` its 32 bits as an unsigned
/// number, `mix` the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014):
///
///     z ^= z >> 30;  z *= 0xBF58476D1CE4E5B9;  z ^= z >> 27;  z *= 0x94D049BB133111EB;  z ^= z >> 31
///
/// and `key` is mix(FNV-1a-64 of the logical path). A sum does not care how the tensor is cut or in which
/// order its parts are added, so every grid gets the same value; the key tells tensors of equal content
/// apart. It finds accidents (damage, mixed-up boxes, stale parts), not forgery.
uint64_t logical_key(std::string_view logical_path);

/// Sum of `count` elements with the indices first_index, first_index + 1, ...; `data` needs no alignment.
uint64_t hash_run(uint64_t key, uint64_t first_index, const void* data, int64_t count);

/// Sum of the row-major positions [begin, end) of `box`; `data` points at position `begin`, unaligned if need
/// be.
uint64_t hash_range(uint64_t key, const Shape& global, const Box& box, int64_t begin, int64_t end,
                    const void* data);

/// Sum of a whole piece.
uint64_t hash_piece(const StatePiece& piece);

}  // namespace triax
