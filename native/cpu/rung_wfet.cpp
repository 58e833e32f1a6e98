// WFET (Arm ARM, C6.2, FEAT_WFxT): the core sleeps until the word's line is written, or until a value of the counter.
#if defined(__aarch64__)

#include "cpu/exclusive.h"
#include "cpu/features.h"
#include "cpu/monitor.h"
#include "cpu/trial.h"

namespace aiospin::cpu {

namespace {

void doze(Ticks until) noexcept {
  register Ticks deadline asm("x0") = until;
  asm volatile(".inst 0xd5031000" ::"r"(deadline) : "memory");  // wfet x0; older assemblers do not know it
}

void attempt() noexcept {
  const Word word{0};
  reserve(word);
  doze(ticks() + 100);
}

std::string refusal() { return features().wfxt ? survives(attempt) : "the kernel reports no WFXT"; }

}  // namespace

const Rung kWfetRung{"wfet", refusal, monitor_until<reserve, doze>, reserve, doze};

}  // namespace aiospin::cpu

#endif
