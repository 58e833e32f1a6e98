// CRC-32C (Castagnoli; RFC 3720, B.4) of a slot's payload, for queues created with checksum=True.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace aiospin::shm {

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;

}  // namespace aiospin::shm
