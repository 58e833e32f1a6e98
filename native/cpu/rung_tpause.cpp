// TPAUSE (Intel SDM vol. 2B): the core naps in C0.1 between two looks. For words that cannot be monitored.
#if defined(__x86_64__)

#include "cpu/breath.h"
#include "cpu/features.h"
#include "cpu/trial.h"
#include "cpu/waitpkg.h"

namespace aiospin::cpu {

namespace {

constexpr double kNapUs = 0.1;  // the shortest; about what resuming from C0.1 takes

// The longest breath is one nap: C0.2 would resume too late from anything so short.
void nap(double us) noexcept { static_cast<void>(waitpkg::tpause(waitpkg::State::c01, ticks() + from_us(us))); }

Ended wait(const Word& word, std::uint64_t seen, Ticks until) noexcept {
  const Ticks begun = ticks();
  for (;;) {
    // relaxed: a change is only a hint; whoever acts on it loads the word again with acquire.
    if (word.load(std::memory_order_relaxed) != seen) return Ended::changed;
    const Ticks now = ticks();
    if (now >= until) return Ended::deadline;
    // An eighth of the wait so far: seen late by so much at most, in proportion.
    const Ticks length = std::clamp((now - begun) / 8, from_us(kNapUs), from_us(kLongestBreathUs));
    static_cast<void>(waitpkg::tpause(waitpkg::State::c01, std::min(until, now + length)));
  }
}

void attempt() noexcept { nap(kNapUs); }

std::string refusal() {
  if (!features().waitpkg) return "CPUID reports no WAITPKG";
  if (!features().invariant) return "CPUID reports no invariant TSC, by which it measures its deadline";
  return survives(attempt);
}

}  // namespace

const Rung kTpauseRung{"tpause", refusal, wait};

}  // namespace aiospin::cpu

#endif
