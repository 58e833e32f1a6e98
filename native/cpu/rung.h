// The contract of a rung: one way to idle this CPU until a word changes.
//
// `wait` returns when `word` no longer holds `seen`, or when ticks() has reached `until`, or for no reason; it never
// sleeps past a store to `word` made after `seen` was read, and never past `until` by more than the rung's own grain.
// It makes no system call, takes no lock and may be called by any thread.
#pragma once

#include <string_view>

#include "platform/clock.h"
#include "platform/word.h"

namespace aiospin::cpu {

struct Rung {
  std::string_view name;
  void (*wait)(const Word& word, std::uint64_t seen, Ticks until) noexcept;
};

extern const Rung kPauseRung;

// The rung of this process; every wait of the process idles with it.
const Rung& chosen() noexcept;

}  // namespace aiospin::cpu
