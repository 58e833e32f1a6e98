// The contract of a rung: one way to idle this CPU until a word changes. One file per rung, and this one beside them.
//
// `wait` returns when `word` no longer holds `seen` (changed), when ticks() has reached `until` (deadline), or for no
// reason (empty): an interrupt, the limit of the OS, another word on the line. It never sleeps past a store to `word`
// made after `seen` was read, and never past `until` by more than its grain; a rung that naps between its looks may
// see the store late by a grain. A read-only mapping is enough. No lock; no system call but `yield`'s; any thread.
//
// Two kinds: a monitor arms the CPU's own watch on the word's line, looks again, and dozes until the line is written
// (monitor.h); a breath looks, pauses for a moment, and looks again (breath.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "platform/clock.h"
#include "platform/word.h"

namespace aiospin::cpu {

enum class Ended : std::uint8_t { changed, deadline, empty };

struct Rung {
  std::string_view name;
  // Why this CPU cannot use it; empty when it can. Executes it once, guarded: ask verdicts(), which keeps the answer.
  std::string (*refusal)();
  Ended (*wait)(const Word& word, std::uint64_t seen, Ticks until) noexcept;
  // A monitor's two halves, null for a breath: watch the word's line from here on; doze until it is written, `until`,
  // or for no reason.
  void (*arm)(const Word& word) noexcept = nullptr;
  void (*doze)(Ticks until) noexcept = nullptr;

  bool monitors() const noexcept { return arm != nullptr; }
};

#if defined(__x86_64__)
extern const Rung kUmwaitRung, kMwaitxRung, kTpauseRung, kPauseRung;
#elif defined(__aarch64__)
extern const Rung kWfetRung, kWfeRung, kSbRung, kIsbRung;
#endif
extern const Rung kYieldRung;

struct Verdict {
  const Rung* rung;
  std::string refusal;  // empty: usable
};

// Every rung of this build, best first, with what came of trying it: once per process, at the first call, which the
// bindings make while they are imported.
std::span<const Verdict> verdicts();

// The rung that waits of this process idle with: the best usable one, unless choose() named another.
const Rung& chosen() noexcept;
// The best usable rung that is no monitor: what a demoted one's waits breathe with.
const Rung& breather() noexcept;
// The rung of that name. Throws std::invalid_argument that says why it cannot be had.
const Rung& usable(std::string_view name);
// From now on chosen() is that one; before the first wait.
void choose(const Rung& rung) noexcept;

// A rung's wait, for as long as it does what it promises; a monitor that keeps coming back for nothing is demoted for a
// while, and this breathes instead (conduct.h).
Ended idle(const Rung& rung, const Word& word, std::uint64_t seen, Ticks until) noexcept;

}  // namespace aiospin::cpu
