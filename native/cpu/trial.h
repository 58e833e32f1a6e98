// Executing an instruction for the first time: CPUID has promised ones that a hypervisor then refuses.
#pragma once

#include <string>

namespace aiospin::cpu {

// Runs `attempt` once, in this thread, where SIGILL, SIGSEGV and SIGBUS end it without harm. Empty when it returned;
// otherwise what came of it, as in "it raised SIGILL".
//
// The handlers are there for the trial only and are put back. Faults of other threads, and signals of these numbers that
// somebody sends, go to those that were there before; other signals of this thread come after the trial. Two trials never
// run at once. `attempt` must hold nothing that has to be given back: no lock, no object with a destructor, no first call
// of something that sets itself up. (A thread of its own would leave an arena of 64 MiB reserved, where it frees what it
// was started with.)
std::string survives(void (*attempt)() noexcept);

}  // namespace aiospin::cpu
