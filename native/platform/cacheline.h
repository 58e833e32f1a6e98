// How far apart words must lie so that they never share a monitored or prefetched line.
#pragma once

#include <cstddef>

namespace aiospin {

// Two 64-byte lines: the adjacent-line prefetcher moves pairs, and 128 is the largest monitored line in the field.
inline constexpr std::size_t kLine = 128;

}  // namespace aiospin
