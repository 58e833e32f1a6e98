// arm64's monitor: an exclusive load watches its line, and a store to it by another core is an event (Arm ARM, B2.9, D1).
#pragma once

#if defined(__aarch64__)

#include "platform/word.h"

namespace aiospin::cpu {

// The event register may hold an event of before: SEVL and WFE leave it empty without sleeping. Only then the exclusive
// load: WFE after any other wakes for events that have nothing to do with the word, and never for a store.
inline void reserve(const Word& word) noexcept {
  std::uint64_t value;
  const auto* address = reinterpret_cast<const std::uint64_t*>(&word);
  asm volatile("sevl\n\twfe\n\tldaxr %0, %1" : "=r"(value) : "Q"(*address) : "memory");
  static_cast<void>(value);
}

// Ends WFE and WFET on every core: for whoever waits for a thread that dozes.
inline void send_event() noexcept { asm volatile("dsb ish\n\tsev" ::: "memory"); }

}  // namespace aiospin::cpu

#endif
