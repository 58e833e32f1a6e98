// Executing an instruction for the first time: CPUID has promised ones that a hypervisor then refuses.
#pragma once

#include <string>

namespace aiospin::cpu {

// Runs `attempt` once, on a thread of its own, which SIGILL, SIGSEGV and SIGBUS end without harm. Empty when it returned;
// otherwise what came of it, as in "it raised SIGILL".
//
// The handlers are there for the trial only and are put back; faults of other threads go to those that were there
// before. Two trials never run at once. `attempt` must own nothing that needs a destructor.
std::string survives(void (*attempt)() noexcept);

}  // namespace aiospin::cpu
