// The contract of a rung: one way to idle this CPU until a word changes.
//
// `wait` returns when `word` no longer holds `seen`, or when ticks() has reached `until`, or for no reason; it never
// sleeps past a store to `word` made after `seen` was read, and never past `until` by more than the rung's own grain.
// It makes no system call, takes no lock and may be called by any thread.
#pragma once

#include <span>
#include <string_view>

#include "platform/clock.h"
#include "platform/word.h"

namespace aiospin::cpu {

struct Rung {
  std::string_view name;
  void (*wait)(const Word& word, std::uint64_t seen, Ticks until) noexcept;
};

extern const Rung kPauseRung;

// The rungs of this build, best first, and the one that every wait of this process idles with: the first, unless
// choose() named another before the first wait. False for a name that is not there.
std::span<const Rung* const> rungs() noexcept;
const Rung& chosen() noexcept;
bool choose(std::string_view name) noexcept;

}  // namespace aiospin::cpu
