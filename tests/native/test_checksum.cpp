// CRC-32C against the vectors of RFC 3720, B.4, and against a bit-by-bit computation at every alignment.
#include <doctest/doctest.h>

#include <array>
#include <string_view>
#include <vector>

#include "shm/checksum.h"

namespace {

using aiospin::shm::crc32c;

std::uint32_t slowly(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

TEST_CASE("known vectors") {
  std::array<std::byte, 32> bytes{};
  CHECK(crc32c(bytes) == 0x8a9136aa);
  bytes.fill(std::byte{0xff});
  CHECK(crc32c(bytes) == 0x62a8ab43);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  CHECK(crc32c(bytes) == 0x46dd794e);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(31 - i);
  CHECK(crc32c(bytes) == 0x113fdb5c);
  constexpr std::string_view digits = "123456789";
  CHECK(crc32c(std::as_bytes(std::span(digits))) == 0xe3069283);
  CHECK(crc32c({}) == 0);
}

TEST_CASE("every length and alignment") {
  std::vector<std::byte> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 140; ++length) {
      const auto part = std::span<const std::byte>(bytes).subspan(begin, length);
      REQUIRE(crc32c(part) == slowly(part));
    }
  }
}

}  // namespace
