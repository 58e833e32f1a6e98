// A watch on any aligned word that somebody stores to and nobody rings for: flags that a GPU or another program sets.
#pragma once

#include <cstdint>

#include "wait/watch.h"

namespace aiospin::wait {

enum class Comparison : std::uint8_t { equal, not_equal, at_least, below };

// `word & mask` compared with `value`, as unsigned numbers.
class WordWatch final : public Watch {
 public:
  WordWatch(const Word& word, Comparison comparison, std::uint64_t value, std::uint64_t mask) noexcept
      : word_(word), value_(value), mask_(mask), comparison_(comparison) {}

  const Word& word() const noexcept override { return word_; }
  // relaxed: a starting point for watching; ready() decides.
  std::uint64_t seen() const noexcept override { return word_.load(std::memory_order_relaxed); }
  bool ready() const noexcept override;
  // There is nobody to announce to.
  bool announce() noexcept override { return ready(); }

 private:
  const Word& word_;
  const std::uint64_t value_, mask_;
  const Comparison comparison_;
};

}  // namespace aiospin::wait
