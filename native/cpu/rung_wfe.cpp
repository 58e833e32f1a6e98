// WFE (Arm ARM, C6.2): the core sleeps until the word's line is written. It knows no deadline: the kernel's event stream
// ends it every 100 us, by which it may overshoot, and where there is none it is not used.
#if defined(__aarch64__)

#include "cpu/exclusive.h"
#include "cpu/features.h"
#include "cpu/monitor.h"
#include "cpu/trial.h"

namespace aiospin::cpu {

namespace {

void doze(Ticks) noexcept { asm volatile("wfe" ::: "memory"); }

void attempt() noexcept {
  const Word word{0};
  reserve(word);
  doze(0);
}

std::string refusal() {
  if (!features().evtstrm) return "the kernel reports no event stream (EVTSTRM), and nothing else would end it in time";
  return survives(attempt);
}

}  // namespace

const Rung kWfeRung{"wfe", refusal, monitor_until<reserve, doze>, reserve, doze};

}  // namespace aiospin::cpu

#endif
