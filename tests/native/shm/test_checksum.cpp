// CRC-32C against the vectors of RFC 3720, B.4, and bit by bit at every alignment; both ways of computing it.
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <string_view>
#include <vector>

// A private copy of the source under another name: both ways are reachable in it, whatever this CPU would choose.
#define crc32c crc32c_copied
#include "shm/checksum.cpp"  // NOLINT(bugprone-suspicious-include)
#undef crc32c

namespace aiospin::shm {
std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;  // the library's own
}

namespace {

using Crc = std::uint32_t (*)(std::span<const std::byte>);

std::uint32_t slowly(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::vector<Crc> ways() {
  std::vector<Crc> found{
      slowly,
      [](std::span<const std::byte> bytes) { return aiospin::shm::crc32c(bytes); },
      [](std::span<const std::byte> bytes) { return aiospin::shm::crc32c_copied(bytes); },
      [](std::span<const std::byte> bytes) { return ~aiospin::shm::portable(~0u, bytes.data(), bytes.size()); },
  };
#if defined(__x86_64__)
  if (aiospin::shm::has_hardware()) {
    found.push_back([](std::span<const std::byte> bytes) {
      return ~aiospin::shm::hardware(~0u, bytes.data(), bytes.size());
    });
  }
#endif
  return found;
}

TEST_CASE("the vectors of RFC 3720") {
  for (const Crc crc : ways()) {
    std::array<std::byte, 32> bytes{};
    CHECK(crc(bytes) == 0x8a9136aa);
    bytes.fill(std::byte{0xff});
    CHECK(crc(bytes) == 0x62a8ab43);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    CHECK(crc(bytes) == 0x46dd794e);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(31 - i);
    CHECK(crc(bytes) == 0x113fdb5c);
    // An iSCSI SCSI Read (10) command PDU.
    constexpr std::array<unsigned char, 48> read_pdu{0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                     0x14, 0, 0, 0, 0, 0, 0x04, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                                     0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0};
    CHECK(crc(std::as_bytes(std::span(read_pdu))) == 0xd9963a56);
    constexpr std::string_view digits = "123456789";
    CHECK(crc(std::as_bytes(std::span(digits))) == 0xe3069283);
    CHECK(crc({}) == 0);
  }
}

TEST_CASE("all ways agree at every length and alignment") {
  const std::vector<Crc> all = ways();
  std::mt19937 random(3720);
  std::vector<std::byte> bytes(300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 140; ++length) {
      const auto part = std::span<const std::byte>(bytes).subspan(begin, length);
      for (const Crc crc : all) REQUIRE(crc(part) == all.front()(part));
    }
  }
}

TEST_CASE("one flipped bit anywhere changes the checksum") {
  std::vector<std::byte> bytes(200, std::byte{0x3c});
  const std::uint32_t before = aiospin::shm::crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    REQUIRE(aiospin::shm::crc32c(bytes) != before);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

}  // namespace
