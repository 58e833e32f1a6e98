// One polite breath between two looks at a word.
//
// x86-64: PAUSE (Intel SDM vol. 2B), 10 to 140 cycles by generation, so loops are bounded by time and never by
// iterations. arm64: ISB, since YIELD is a no-op on almost every core (Arm ARM, C6.2).
#pragma once

namespace aiospin::cpu {

inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace aiospin::cpu
