// What all monitors have in common: arm, look again, doze, in a loop with a deadline.
#pragma once

#include "cpu/rung.h"
#include "platform/cacheline.h"

namespace aiospin::cpu {

// A wait that is at least this long may idle deeper, where the CPU has a choice (C0.2 instead of C0.1, C1 instead of
// C0): resuming takes up to a microsecond then, which must be a small part of the whole.
inline constexpr double kDeepUs = 20;

template <void (*arm)(const Word&) noexcept, void (*doze)(Ticks) noexcept>
Ended monitor_until(const Word& word, std::uint64_t seen, Ticks until) noexcept {
  arm(word);
  // relaxed: a change is only a hint; whoever acts on it loads the word again with acquire. A store since `seen` was read
  // is seen here, and one from here on ends the doze.
  if (word.load(std::memory_order_relaxed) != seen) return Ended::changed;
  if (ticks() >= until) return Ended::deadline;
  doze(until);
  // relaxed: as above.
  if (word.load(std::memory_order_relaxed) != seen) return Ended::changed;
  return ticks() >= until ? Ended::deadline : Ended::empty;
}

// Why a monitor of lines that CPUID tells cannot be used; empty when it can, short of a trial.
inline std::string refusal_of_lines(unsigned largest) {
  if (largest <= kLine) return "";  // 0, not told, too: a guest's CPUID often leaves it out
  return "it watches lines of " + std::to_string(largest) + " bytes, and words are only " + std::to_string(kLine) +
         " bytes apart";
}

}  // namespace aiospin::cpu
