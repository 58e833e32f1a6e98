// MONITORX and MWAITX (AMD APM vol. 3): the core sleeps until the word's line is written, or its timer has run down.
//
// The timer is a count of TSC ticks from now on, in 32 bits, where 0 means none: without it a writer that died would end
// no wait. Why it returned it does not say.
#if defined(__x86_64__)

#include <algorithm>

#include "cpu/features.h"
#include "cpu/monitor.h"
#include "cpu/trial.h"

namespace aiospin::cpu {

namespace {

constexpr std::uint32_t kC0 = 0xf0, kC1 = 0x00;  // EAX[7:4] is the state less one; resumes soonest; saves most
constexpr std::uint32_t kTimed = 2;              // ECX[1]: EBX is the timer

void arm(const Word& word) noexcept {
  asm volatile(".byte 0x0f, 0x01, 0xfa" ::"a"(&word), "c"(0), "d"(0) : "memory");  // monitorx %rax, %ecx, %edx
}

void doze(Ticks until) noexcept {
  const Ticks now = ticks();
  if (now >= until) return;
  const auto timer = static_cast<std::uint32_t>(std::min<Ticks>(until - now, 0xffff'ffff));
  const std::uint32_t hint = until - now > from_us(kDeepUs) ? kC1 : kC0;
  asm volatile(".byte 0x0f, 0x01, 0xfb" ::"a"(hint), "c"(kTimed), "b"(timer) : "memory");  // mwaitx %eax, %ecx, %ebx
}

void attempt() noexcept {
  const Word word{0};
  arm(word);
  doze(ticks() + 1000);
}

std::string refusal() {
  if (!features().monitorx) return "CPUID reports no MONITORX";
  if (!features().invariant) return "CPUID reports no invariant TSC, by which its timer is measured";
  if (std::string lines = refusal_of_lines(features().largest_line); !lines.empty()) return lines;
  return survives(attempt);
}

}  // namespace

const Rung kMwaitxRung{"mwaitx", refusal, monitor_until<arm, doze>, arm, doze};

}  // namespace aiospin::cpu

#endif
