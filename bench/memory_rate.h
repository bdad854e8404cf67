#pragma once

#include <algorithm>

#include "core/device.h"

namespace triax {

/// Bytes/s of memory on a device's threads, over arrays far larger than the caches, by three kinds of
/// traffic.
struct MemoryRates {
  /// a[i] = b[i] + s * c[i], three transfers an element (McCalpin's STREAM triad). Ordinary stores first read
  /// the line that they write, which doesn't count: this is too low for what reads all that it writes.
  double triad = 0;
  double streamed = 0;  ///< the same with stores that go past the caches and read nothing
  /// In place, as AdamW does it: reads four arrays, writes three of them, 28 bytes an element.
  double update = 0;

  /// The roof: no kernel's traffic is expected to be quicker than the quickest of these.
  double fastest() const { return std::max({triad, streamed, update}); }
};

/// Runs for about `seconds`; takes 270 MB.
MemoryRates measured_memory_rates(Device& device, double seconds);

}  // namespace triax
