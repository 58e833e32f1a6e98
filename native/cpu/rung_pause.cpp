// PAUSE (Intel SDM vol. 2B): 10 to 140 cycles by generation. Every x86-64 CPU has it; it is kind to the sibling
// hyperthread and saves little power.
#if defined(__x86_64__)

#include "cpu/breath.h"

namespace aiospin::cpu {

namespace {
void breathe() noexcept { asm volatile("pause" ::: "memory"); }
}  // namespace

const Rung kPauseRung{"pause", never_refused, breathe_until<breathe>};

}  // namespace aiospin::cpu

#endif
