// Executing an instruction for the first time: CPUID has promised ones that a hypervisor then refuses.
#pragma once

#include <string>

namespace aiospin::cpu {

// Runs `attempt` once, in this thread, where SIGILL, SIGSEGV and SIGBUS end it without harm. Empty when it returned;
// otherwise what came of it, as in "it raised SIGILL".
//
// The handlers are there for the trial only and are put back; faults of other threads go to those that were there
// before, and other signals of this thread come after it. Two trials never run at once. `attempt` must own nothing that
// needs a destructor. (A thread of its own would leave an arena of 64 MiB reserved where it frees what it was started with.)
std::string survives(void (*attempt)() noexcept);

}  // namespace aiospin::cpu
