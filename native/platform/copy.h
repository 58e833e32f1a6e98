// Copying bytes to memory that is not in a cache, and that this CPU will not read.
//
// Guarantee: the same bytes as memcpy. They are visible to whoever sees a store that this thread makes afterwards.
#pragma once

#include <cstddef>

namespace aiospin {

// Bytes from which on `copy_past_cache` is worth its start.
inline constexpr std::size_t kWorthPassing = std::size_t{256} << 10;

// Around the caches where the CPU has stores for that (x86-64: MOVNTDQ; "Non-temporal data" in the Intel SDM, volume 1,
// 10.4.6.2): lines that are overwritten as a whole are then not read first, and none that are needed make way for them.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t n) noexcept;

// Bytes of the third-level cache, as the kernel has it in sysfs; a guess where it says nothing.
std::size_t shared_cache() noexcept;

}  // namespace aiospin
