// The three instructions of WAITPKG (Intel SDM vol. 2B), as bytes: no compiler flag, and no assembler too old for them.
//
// A deadline is an absolute value of the TSC. The OS limits every wait (IA32_UMWAIT_CONTROL, 100,000 ticks on Linux) and
// may forbid C0.2, which then is C0.1. Bits of the control word other than bit 0 raise #GP.
#pragma once

#if defined(__x86_64__)

#include <cstdint>

#include "platform/clock.h"

namespace aiospin::cpu::waitpkg {

enum class State : std::uint32_t { c02 = 0, c01 = 1 };  // deeper and slower to resume; lighter

inline void umonitor(const void* address) noexcept {
  asm volatile(".byte 0xf3, 0x0f, 0xae, 0xf0" ::"a"(address) : "memory");  // umonitor %rax
}

// True when the limit of the OS ended it (CF).
inline bool umwait(State state, Ticks deadline) noexcept {
  bool limited;
  asm volatile(".byte 0xf2, 0x0f, 0xae, 0xf1"  // umwait %ecx
               : "=@ccc"(limited)
               : "c"(state), "a"(static_cast<std::uint32_t>(deadline)), "d"(static_cast<std::uint32_t>(deadline >> 32))
               : "memory");
  return limited;
}

inline bool tpause(State state, Ticks deadline) noexcept {
  bool limited;
  asm volatile(".byte 0x66, 0x0f, 0xae, 0xf1"  // tpause %ecx
               : "=@ccc"(limited)
               : "c"(state), "a"(static_cast<std::uint32_t>(deadline)), "d"(static_cast<std::uint32_t>(deadline >> 32))
               : "memory");
  return limited;
}

}  // namespace aiospin::cpu::waitpkg

#endif
