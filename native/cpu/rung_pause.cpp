// PAUSE (Intel SDM vol. 2B): 10 to 140 cycles by generation. Every x86-64 CPU has it; it is kind to the sibling
// hyperthread and saves little power.
#if defined(__x86_64__)

#include "cpu/breath.h"
#include "cpu/relax.h"

namespace aiospin::cpu {

const Rung kPauseRung{"pause", never_refused, breathe_until<relax>};

}  // namespace aiospin::cpu

#endif
