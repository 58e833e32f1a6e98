// A full barrier on every running thread of every registered process: the price that the side about to sleep pays so
// that a peer with plain stores and loads pays none (membarrier(2), GLOBAL_EXPEDITED).
#pragma once

namespace aiospin::membarrier {

// Both return false where the kernel or a seccomp filter refuses. Registration is per process and idempotent.
bool enroll() noexcept;
bool everywhere() noexcept;

}  // namespace aiospin::membarrier
