// sched_yield(2): lets another thread have the CPU between two looks. The rung of CPUs for which no other is written, and
// for those who share one core with whom they wait for. The only one that makes a system call.
#include <sched.h>

#include "cpu/breath.h"

namespace aiospin::cpu {

namespace {
void breathe() noexcept { sched_yield(); }
}  // namespace

// One at a time: nobody knows how long the other thread keeps the CPU.
const Rung kYieldRung{"yield", never_refused, breathe_until<breathe, Length::one>};

}  // namespace aiospin::cpu
