// What all breaths have in common: look, breathe, look again.
#pragma once

#include <algorithm>
#include <string>

#include "cpu/rung.h"

namespace aiospin::cpu {

// The longest breath: so late may a store be seen, once the wait has gone on for long.
inline constexpr double kLongestBreathUs = 0.25;
// For the first looks a breath is one instruction; then it doubles, each time after as many looks again.
inline constexpr unsigned kLooks = 4, kRoundsPerLength = 32;

enum class Length { doubles, one };

// How many of them the longest breath holds. They differ by a factor of ten between CPUs, so they are timed.
template <void (*breathe)() noexcept>
unsigned breaths_at_most() noexcept {
  static const unsigned found = [] {
    constexpr unsigned kTimed = 64;
    Ticks quickest = ~Ticks{0};
    for (int attempt = 0; attempt < 4; ++attempt) {  // the quickest was not preempted
      const Ticks begun = ticks();
      for (unsigned i = 0; i < kTimed; ++i) breathe();
      quickest = std::min(quickest, ticks() - begun);
    }
    const double one_us = to_us(std::max<Ticks>(quickest, 1)) / kTimed;
    return static_cast<unsigned>(std::clamp(kLongestBreathUs / one_us, 1.0, 1024.0));
  }();
  return found;
}

template <void (*breathe)() noexcept, Length kind = Length::doubles>
Ended breathe_until(const Word& word, std::uint64_t seen, Ticks until) noexcept {
  for (unsigned round = 1, length = 1;; ++round) {
    // Several looks per reading of the clock: a look costs a cache hit, the clock 10 ns.
    for (unsigned look = 0; look < kLooks; ++look) {
      // relaxed: a change is only a hint; whoever acts on it loads the word again with acquire.
      if (word.load(std::memory_order_relaxed) != seen) return Ended::changed;
      for (unsigned i = 0; i < length; ++i) breathe();
    }
    if (ticks() >= until) return Ended::deadline;
    if (kind == Length::doubles && round % kRoundsPerLength == 0) length = std::min(2 * length, breaths_at_most<breathe>());
  }
}

inline std::string never_refused() { return ""; }

}  // namespace aiospin::cpu
