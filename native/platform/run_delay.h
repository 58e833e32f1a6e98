// How long this thread has been runnable without running: the sign that somebody else needs the CPU.
#pragma once

#include <cstdint>

namespace aiospin {

// Nanoseconds since the thread began, from /proc/thread-self/schedstat (5 us a call); 0 where the kernel does not say.
std::uint64_t run_delay_ns() noexcept;

}  // namespace aiospin
