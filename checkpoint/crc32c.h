#pragma once

#include <cstddef>
#include <cstdint>

namespace triax {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4): reflected polynomial 0x82F63B78, initial and final
/// complement; of "123456789" it is E3069283. Continues from `crc`, the value of the bytes before, 0 for
/// none. Uses the processor's instruction where there is one (about 9 GB/s), tables of 8 bytes otherwise.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);

/// The tables' code path, for processors without the instruction and for tests.
uint32_t crc32c_by_tables(uint32_t crc, const void* data, size_t bytes);

}  // namespace triax
