// Where a fuzzer's decisions come from: a seed and a number, or the bytes that a coverage-guided engine proposes.
//
// Guarantee: the same source gives the same decisions, so whatever they led to can be led to again.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace aiospin::fuzz {

class Choices {
 public:
  // Execution `number` of campaign `seed`, independent of every other one.
  Choices(std::uint64_t seed, std::uint64_t number) noexcept : state_(mix(mix(seed) ^ number)) {}
  explicit Choices(std::span<const std::uint8_t> bytes) noexcept : bytes_(bytes), guided_(true) {}

  std::uint64_t any() noexcept { return guided_ ? next(8) : random(); }
  // From 0 to n - 1.
  std::uint64_t below(std::uint64_t n) noexcept {
    if (!guided_) return random() % n;
    return next(n <= 0x100 ? 1 : n <= 0x10000 ? 2 : 8) % n;
  }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }
  // No more bytes: every further decision is 0.
  bool exhausted() const noexcept { return guided_ && bytes_.empty(); }

 private:
  // splitmix64 (Steele, Lea, Flood 2014): a full period from any state.
  static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  std::uint64_t random() noexcept {
    const std::uint64_t found = mix(state_);
    state_ += 0x9e3779b97f4a7c15;
    return found;
  }
  std::uint64_t next(std::size_t size) noexcept {
    std::uint64_t value = 0;
    const std::size_t there = size < bytes_.size() ? size : bytes_.size();
    if (there != 0) std::memcpy(&value, bytes_.data(), there);
    bytes_ = bytes_.subspan(there);
    return value;
  }

  std::uint64_t state_ = 0;
  std::span<const std::uint8_t> bytes_;
  bool guided_ = false;
};

}  // namespace aiospin::fuzz
