// SB (Arm ARM, C6.2, FEAT_SB): a barrier to speculation. It holds the core back as ISB does, without a flush.
#if defined(__aarch64__)

#include "cpu/breath.h"
#include "cpu/features.h"
#include "cpu/trial.h"

namespace aiospin::cpu {

namespace {

void breathe() noexcept { asm volatile(".inst 0xd50330ff" ::: "memory"); }  // older assemblers do not know it

std::string refusal() { return features().sb ? survives(breathe) : "the kernel reports no SB"; }

}  // namespace

const Rung kSbRung{"sb", refusal, breathe_until<breathe>};

}  // namespace aiospin::cpu

#endif
