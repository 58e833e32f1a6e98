// UMONITOR and UMWAIT (Intel SDM vol. 2B): the core sleeps in C0.1 or C0.2 until the word's line is written.
#if defined(__x86_64__)

#include "cpu/features.h"
#include "cpu/monitor.h"
#include "cpu/trial.h"
#include "cpu/waitpkg.h"

namespace aiospin::cpu {

namespace {

void arm(const Word& word) noexcept { waitpkg::umonitor(&word); }

void doze(Ticks until) noexcept {
  const bool deep = until > ticks() + from_us(kDeepUs);
  // A wait that the OS cut short is armed again by whoever waits on: to them it is an empty one.
  static_cast<void>(waitpkg::umwait(deep ? waitpkg::State::c02 : waitpkg::State::c01, until));
}

void attempt() noexcept {
  const Word word{0};
  arm(word);
  doze(ticks() + 1000);
}

std::string refusal() {
  if (!features().waitpkg) return "CPUID reports no WAITPKG";
  if (!features().invariant) return "CPUID reports no invariant TSC, by which it measures its deadline";
  if (std::string lines = refusal_of_lines(features().largest_line); !lines.empty()) return lines;
  return survives(attempt);
}

}  // namespace

const Rung kUmwaitRung{"umwait", refusal, monitor_until<arm, doze>, arm, doze};

}  // namespace aiospin::cpu

#endif
